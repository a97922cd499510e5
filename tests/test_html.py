"""HTML pages: text is escaped, nothing is loaded, and only the given script may run."""

import re

from regard.html import csp_hash, embed_bytes, render_page, render_shell


def policy(text: str) -> dict[str, str]:
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert found is not None
    return dict(part.strip().split(" ", 1) for part in found[1].split(";"))


def test_the_policy_allows_what_is_given_and_nothing_else() -> None:
    assert policy(render_page("a", "b")) == {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}
    given = policy(render_page("a", "b", style="p {}", script="1;", images="data:"))
    assert given["style-src"] == f"'{csp_hash('p {}')}'" and given["script-src"] == f"'{csp_hash('1;')}'"
    assert given["img-src"] == "data:"
    assert policy(render_page("a", "b", style="p {}", inline_styles=True))["style-src"] == "'unsafe-inline'"


def test_the_hash_is_of_the_bytes_between_the_tags() -> None:
    text = render_page("a", "b", style="p { content: 'é' }", script="\nawait 1;\n", script_type="module")
    [script] = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert policy(text)["script-src"] == f"'{csp_hash(script)}'" and policy(text)["style-src"] == f"'{csp_hash(style)}'"


def test_titles_are_text_and_data_is_base64() -> None:
    for text in (render_page("</title><b>", "x"), render_shell("</title><b>", "x")):
        assert "<title>&lt;/title&gt;&lt;b&gt;</title>" in text
    assert embed_bytes("numbers", b"</script>") == (
        '<script type="application/octet-stream" id="numbers">PC9zY3JpcHQ+</script>'
    )
