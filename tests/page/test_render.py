"""The page as one HTML file, the bundle of its modules, and a gallery of pages."""

import base64
import hashlib
import re
import shutil
import subprocess
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from browser import picture_records
from page import sample
from regard.errors import RecordError
from regard.page.payload import pack_payload
from regard.page.render import (
    TYPE,
    GalleryItem,
    bundle_modules,
    declared_names,
    import_order,
    reachable_modules,
    read_static,
    render_record,
    save_gallery,
    save_page,
)


def test_the_policy_names_the_script_and_the_style_that_are_there() -> None:
    text = render_record(sample.bert())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    [script] = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    for kind, content in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none';") and "unsafe" not in policy[1]
    assert 'src="' not in text.replace("img-src", "") and "http://" not in text.replace(
        "http://www.w3.org/2000/svg", ""
    )


def test_the_payload_is_inside() -> None:
    record = sample.grouped()
    [inside] = re.findall(r'id="regard-payload">([^<]*)</script>', render_record(record))
    assert base64.b64decode(inside) == pack_payload(record)


def test_a_title_is_text() -> None:
    assert "<title>&lt;b&gt;</title>" in render_record(sample.bert(), title="<b>")
    text = render_record(sample.hostile())
    assert "alert(4)</script>" not in text and "&lt;/title&gt;" in text


def test_the_file_is_written_atomically(tmp_path: Path) -> None:
    record = sample.bert()
    save_page(record, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == render_record(record)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_record_that_is_too_large_is_refused_in_words() -> None:
    with pytest.raises(RecordError, match="fewer heads or places, or use `regard serve`"):
        render_record(sample.bert(), max_bytes=1000)


STATIC = Path(str(files("regard.page").joinpath("static")))
ENTRIES = ("main.js", "widget.js")


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_two_modules_declare_the_same_name(entry: str) -> None:
    names = Counter(name for module in reachable_modules(entry) for name in declared_names(read_static(module)))
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) > 50


def test_every_module_is_reached() -> None:
    assert {path.name for path in STATIC.glob("*.js")} == {
        name for entry in ENTRIES for name in reachable_modules(entry)
    }


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_bundle_is_one_script_without_imports(entry: str) -> None:
    script = bundle_modules(entry)
    lines = script.splitlines()
    assert not any(line.startswith("import ") for line in lines)
    assert [line for line in lines if line.startswith("export")] == (
        ["export default { render };"] if entry == "widget.js" else []
    )
    assert "</script" not in script.lower() and "<!--" not in script


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_bundle_has_the_code_of_its_modules_without_their_comments(entry: str) -> None:
    """Line by line: nothing but imports and whole comments is left out."""
    bundled = Counter(bundle_modules(entry).splitlines())
    for name in reachable_modules(entry):
        for line in read_static(name).splitlines():
            code = line.strip()
            if code and not code.startswith(("//", "/**", "* ", "*/", "import ")):
                bare = TYPE.sub("", line.removeprefix("export "))
                assert bundled[bare] or bundled[line], f"{name}: {line}"
    assert not any(line.lstrip().startswith("//") for line in bundled)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_bundle_is_a_module_that_can_be_read(entry: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node to read it with")
    path = tmp_path / "bundle.mjs"
    path.write_text(bundle_modules(entry), encoding="utf-8")
    subprocess.run([node, "--check", str(path)], check=True, timeout=60)


def test_the_page_of_a_text_has_no_code_for_pictures() -> None:
    texts, pictures = render_record(sample.bert()), render_record(picture_records.caption())
    assert "class PictureView" not in texts and "const PictureView = null" in texts and "createImageBitmap" not in texts
    assert "class PictureView" in pictures and "createImageBitmap" in pictures
    assert "class PictureView" in bundle_modules() and "class PictureView" in bundle_modules("widget.js")


def test_modules_come_after_those_that_they_import() -> None:
    sources = {
        "a.js": 'import { b } from "./b.js";\nimport {\n  c,\n} from "./c.js";\nb(c);\n',
        "b.js": 'import { c } from "./c.js";\nexport function b() {}\n',
        "c.js": "export const c = 1;\n",
    }
    assert import_order(sources, "a.js") == ["c.js", "b.js", "a.js"]


def test_circular_imports_are_found() -> None:
    sources = {"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}
    with pytest.raises(AssertionError, match="circular"):
        import_order(sources, "a.js")


def test_text_never_becomes_markup() -> None:
    for path in STATIC.glob("*.js"):
        source = path.read_text(encoding="utf-8")
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert way not in source, f"{path.name} uses {way}"


def test_types() -> None:
    """tsc over the modules, where it is installed."""
    tsc = shutil.which("tsc")
    if tsc is None:
        pytest.skip("no tsc")
    how = "--noEmit --checkJs --allowJs --strict --target es2022 --module es2022 --moduleResolution bundler"
    modules = sorted(str(path) for path in STATIC.glob("*.js"))
    subprocess.run([tsc, *how.split(), "--lib", "es2022,dom,dom.iterable", *modules], check=True, timeout=120)


def test_the_index_links_every_page(tmp_path: Path) -> None:
    record = sample.translator()
    lines = ["<script>alert(1)</script>", "second & last"]
    groups = [
        ("Best", [GalleryItem(record, lines)]),
        ("Worst", [GalleryItem(record, ["b"]), GalleryItem(record, ["c"])]),
    ]
    contents = save_gallery(groups, tmp_path / "pages", "A <title>")
    text = contents.read_text("utf-8")
    assert "<script>" not in text and "&lt;script&gt;" in text and "second &amp; last" in text
    assert "<title>A &lt;title&gt;</title>" in text and "default-src 'none'" in text
    for number in (1, 2, 3):
        assert f'href="{number}.html"' in text
        assert "regard-payload" in (contents.parent / f"{number}.html").read_text("utf-8")
    assert sorted(path.name for path in contents.parent.iterdir()) == ["1.html", "2.html", "3.html", "index.html"]
