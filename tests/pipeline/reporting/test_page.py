"""Tests that the HTML page is self-contained and safe, whatever a file of scores holds."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipeline.judging.render import markdown_table, plain
from pipeline.reporting.page import STYLE, as_html
from quatrain.errors import DataError
from tests.conftest import ROOT

PICTURE = ROOT / "docs" / "iqn_returns.png"


class Read(HTMLParser):
    """Collects tags with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a b.png").write_bytes(PICTURE.read_bytes())
    return tmp_path


def page(markdown: str, folder: Path, title: str = "Passed: preset default") -> Read:
    return Read(as_html(markdown, title, folder))


def test_a_picture_is_in_the_page_with_its_size_if_it_is_one(folder: Path):
    (image,) = page("![a <b>](a%20b.png)", folder).named("img")
    kind, _, data = str(image["src"]).partition(",")
    picture = PICTURE.read_bytes()
    assert kind == "data:image/png;base64"
    assert base64.b64decode(data) == picture
    width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
    assert (image["width"], image["height"]) == (str(width), str(height))
    assert image["alt"] == "a <b>"
    why = r"a b\.png: is no picture; run `dvc repro` to write it anew$"
    for other in (b"RIFF" + bytes(40), picture[:20]):
        (folder / "a b.png").write_bytes(other)
        with pytest.raises(DataError, match=why):
            page("![a](a%20b.png)", folder)


def test_the_page_asks_no_server_for_anything_and_runs_no_script(folder: Path):
    read = page("# x\n\n![a](a%20b.png)\n\n[run](http://127.0.0.1:5000)", folder)
    policies = [tag["content"] for tag in read.named("meta") if "http-equiv" in tag]
    assert policies == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    assert read.named("link") == read.named("script") == []
    assert not re.search(r"url\(|@import", STYLE.read_text())


def test_text_of_a_file_is_escaped(folder: Path):
    hostile = (
        "</td></table><script>alert(1)</script><img src=x onerror=alert(1)> "
        "![x](/etc/passwd) | <!--"
    )
    read = page(markdown_table(["metric"], [[plain(hostile)]]), folder, f"Passed: {hostile}")
    assert read.named("script") == read.named("img") == []
    assert len(read.named("td")) == 1
