"""README.md, params.yaml, params.schema.json -> the pages that are made when the site is built."""

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# In a page: a table of a model's section of params.yaml.
PARAMETERS = re.compile(r"^<!-- parameters: (\w+) -->$", re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds README.md as the first page."""
    text = LINK.sub(_from_root, (ROOT / "README.md").read_text())
    files.append(File.generated(config, "index.md", content=text))
    return files


def _from_root(link: re.Match[str]) -> str:
    """Returns a link of README.md as one of a page in docs/."""
    mark, text, target, anchor = link.groups()
    if ":" in target:
        return link[0]
    return f"{mark}[{text}]({posixpath.relpath(target, 'docs')}{anchor or ''})"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fills in tables of parameters, and names files that are no part of the site."""
    markdown = PARAMETERS.sub(lambda match: parameters(match[1]), markdown)
    folder = posixpath.dirname(page.file.src_uri)

    def shown(link: re.Match[str]) -> str:
        mark, text, target, _ = link.groups()
        place = posixpath.normpath(posixpath.join("docs", folder, target))
        excluded = place.startswith(("docs/cluster/", "docs/schedule/")) or place == "docs/cluster"
        if mark or ":" in target or (place.startswith("docs/") and not excluded):
            return link[0]
        return f"`{place}`" if text in (place, target) else f"{text} (`{place}`)"

    return LINK.sub(shown, markdown)


def parameters(model: str) -> str:
    """Returns a table of every key of a model: its default, what is allowed, what it means."""
    schema = json.loads((ROOT / "params.schema.json").read_text())
    values = yaml.safe_load((ROOT / "params.yaml").read_text())[model]
    section = schema["properties"][model]
    rows = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for path, value, field in _keys(schema, section, values):
        cells = (f"`{path}`", f"`{value}`", _allowed(schema, field), _text(field))
        rows.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(rows)


def _keys(
    schema: Any, section: Any, values: Any, above: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yields path, default and schema of each key; of alternative sections the default one."""
    for name, value in values.items():
        for option in _options(schema, section):
            if name in option.get("properties", {}):
                field = option["properties"][name]
                break
        else:
            field = {}
        path = f"{above}{name}"
        is_section = any("properties" in each for each in _options(schema, field))
        if isinstance(value, dict) and is_section:
            yield from _keys(schema, field, value, f"{path}.")
        else:
            yield path, "null" if value is None else value, field


def _options(schema: Any, field: Any) -> list[Any]:
    if "$ref" in field:
        field = schema["$defs"][field["$ref"].rpartition("/")[2]]
    options = field.get("anyOf", field.get("oneOf"))
    return (
        [field] if options is None else [each for one in options for each in _options(schema, one)]
    )


def _allowed(schema: Any, field: Any) -> str:
    """Returns the types and bounds of a key."""
    return ", ".join(filter(None, (_range(option) for option in _options(schema, field))))


def _range(option: Any) -> str:
    if "const" in option or "enum" in option:
        return ", ".join(f"`{value}`" for value in option.get("enum", [option.get("const")]))
    kind = {"integer": "whole", "array": "list", "object": option.get("title", "mapping")}.get(
        option.get("type"), option.get("type", "")
    )
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {option[key]:g}" for key, sign in signs.items() if key in option]
    return " ".join([kind, *bounds])


def _text(field: Any) -> str:
    return " ".join(field.get("description", "").split())
