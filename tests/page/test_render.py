"""One file with everything in it, and nothing in it that could reach out."""

import base64
import hashlib
import re
from pathlib import Path

import pytest

from page import sample
from regard.errors import RecordError
from regard.page.payload import payload
from regard.page.render import page, save_page


def test_the_policy_names_the_script_and_the_style_that_are_there() -> None:
    text = page(sample.bert())
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


def test_the_numbers_are_inside() -> None:
    record = sample.grouped()
    [inside] = re.findall(r'id="regard-payload">([^<]*)</script>', page(record))
    assert base64.b64decode(inside) == payload(record)


def test_a_title_is_text() -> None:
    assert "<title>&lt;b&gt;</title>" in page(sample.bert(), title="<b>")
    text = page(sample.hostile())
    assert "alert(4)</script>" not in text and "&lt;/title&gt;" in text


def test_the_file_is_written_whole(tmp_path: Path) -> None:
    record = sample.bert()
    save_page(record, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page(record)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_record_that_is_too_large_is_refused_in_words() -> None:
    with pytest.raises(RecordError, match="fewer heads or places, or use `regard serve`"):
        page(sample.bert(), most=1000)
