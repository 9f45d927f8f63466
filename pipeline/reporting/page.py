"""the report in Markdown -> one HTML file that contains its style and pictures."""

import base64
import html
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from pipeline.storage.stored_pictures import read_picture

STYLE = Path(__file__).with_suffix(".css")
# Content security policy: no scripts and no requests, whatever a file of scores holds.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
# Smallest share of its own width that a picture is shown at; below that it scrolls sideways.
READABLE = 0.5


def as_html(markdown: str, title: str, folder: Path) -> str:
    """Renders a page for wide and narrow, light and dark screens; pictures are read from `folder`.

    Raises:
        DataError: a picture is none.
    """
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    reader.add_render_rule("image", _image)
    tokens = reader.parse(markdown)
    headings = []
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", content.content)  # for links such as `#allo`
            headings.append(content.content)
    body = reader.renderer.render(tokens, reader.options, {"folder": folder})
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{STYLE.read_text()}</style>\n</head>\n"
        f'<body class="{html.escape(title.partition(":")[0].lower())}">\n'
        f"{_navigation(headings[1:])}<main>\n{body}</main>\n</body>\n</html>\n"
    )


def _navigation(headings: Sequence[str]) -> str:
    """Returns links to the sections; the style shows them beside the page, or folded above it."""
    links = [
        f'<a href="#{html.escape(heading)}">{html.escape(heading)}</a>\n' for heading in headings
    ]
    top = '<a href="#">Top</a>\n'
    folded = f"<details><summary>Contents</summary>\n{top}{''.join(links)}</details>"
    return f"<nav>\n{folded}\n</nav>\n" if links else ""


def _image(
    _: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, env: dict[str, Any]
) -> str:
    """Renders a picture as data, with its size, so that the page does not jump while it loads."""
    token = tokens[index]
    source = unquote(str(token.attrs["src"]))
    picture = read_picture(env["folder"] / source)
    data = base64.b64encode((env["folder"] / source).read_bytes()).decode()
    return (
        f'<span class="picture"><img alt="{html.escape(token.content)}" '
        f'width="{picture.width}" height="{picture.height}" '
        f'style="min-width:{round(READABLE * picture.width)}px" '
        f'src="data:{picture.media};base64,{data}"></span>'
    )
