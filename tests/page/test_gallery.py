"""A contents page leads to a page for each look, and whatever the lines say stays text."""

from pathlib import Path

from page import sample
from regard.page.gallery import Exhibit, save_gallery


def test_the_contents_lead_to_every_page(tmp_path: Path) -> None:
    record = sample.translator()
    lines = ["<script>alert(1)</script>", "second & last"]
    groups = [("Best", [Exhibit(record, lines)]), ("Worst", [Exhibit(record, ["b"]), Exhibit(record, ["c"])])]
    contents = save_gallery(groups, tmp_path / "pages", "A <title>")
    text = contents.read_text("utf-8")
    assert "<script>" not in text and "&lt;script&gt;" in text and "second &amp; last" in text
    assert "<title>A &lt;title&gt;</title>" in text and "default-src 'none'" in text
    for number in (1, 2, 3):
        assert f'href="{number}.html"' in text
        assert "regard-payload" in (contents.parent / f"{number}.html").read_text("utf-8")
    assert sorted(path.name for path in contents.parent.iterdir()) == ["1.html", "2.html", "3.html", "index.html"]
