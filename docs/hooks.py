"""Fills pages with what the code knows: tables of parameters, scores and pictures of a model.

A page asks for them by `<!-- parameters: MODEL -->`, `<!-- scores: MODEL -->` and
`<!-- pictures: MODEL -->`. Formulas become MathML, which browsers draw without scripts. Links to
files outside docs/ become their paths, because the site has no such pages.
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from latex2mathml.converter import convert
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML

from quatrain.params import Params
from quatrain.registry import load

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"<!-- (parameters|scores|pictures): (\w+) -->")
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+([^)#]+)\)")
FORMULA = re.compile(r'<(div|span) class="arithmatex">\\[(\[](.+?)\\[)\]]</\1>', re.DOTALL)
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the page with its tables; mkdocs calls it."""
    tables = {"parameters": parameters, "scores": scores, "pictures": pictures}
    filled = TABLE.sub(lambda match: tables[match[1]](match[2]), markdown)
    folder = (ROOT / "docs" / page.file.src_uri).parent
    return OUTSIDE.sub(lambda match: without_link(folder, match), filled)


def on_page_content(content: str, **_: Any) -> str:
    """Returns the page with its formulas as MathML; mkdocs calls it."""
    displays = {"div": "block", "span": "inline"}
    return FORMULA.sub(
        lambda match: convert(html.unescape(match[2]), display=displays[match[1]]), content
    )


def without_link(folder: Path, match: re.Match[str]) -> str:
    """Returns the text of a link and the path that it names; a link to another page stays."""
    path = (folder / match[0].rpartition("(")[2].rstrip(")")).resolve()
    if path.is_relative_to(ROOT / "docs"):
        return match[0]
    if not path.exists():
        raise FileNotFoundError(f"docs: {match[0]} names no file of the repository; mend the link")
    name = f"`{path.relative_to(ROOT)}`"
    return name if match[1].strip("`") == str(path.relative_to(ROOT)) else f"{match[1]} ({name})"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def parameters(model: str) -> str:
    """Returns the keys of a model with their values in params.yaml, limits and descriptions."""
    section = built_in(Params.model_fields[model])
    values = YAML(typ="safe").load(ROOT / "params.yaml")[model]
    return table(("key", "default", "allowed", "meaning"), list(rows(section, values, "")))


def rows(section: type[BaseModel], values: Any, above: str) -> Iterator[tuple[str, ...]]:
    for name, field in section.model_fields.items():
        inner = built_in(field)
        value = values.get(name) if isinstance(values, dict) else None
        if inner is not None and isinstance(value, dict) and not field.discriminator:
            yield from rows(inner, value, f"{above}{name}.")
        else:
            shown = f"`{value}`" if value is not None else "null"
            yield f"`{above}{name}`", shown, limits(field), field.description or ""


def built_in(field: FieldInfo) -> Any:
    """Returns the section that a field holds, that of this project's environments in a union."""
    for option in (field.annotation, *get_args(field.annotation)):
        candidate = get_args(option)[0] if get_args(option) else option
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def limits(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(part, name):g}"
        for part in field.metadata
        for name, sign in SIGNS.items()
        if getattr(part, name, None) is not None
    ]
    choices = [str(choice) for choice in get_args(field.annotation) if isinstance(choice, str)]
    return ", ".join(bounds) or ", ".join(choices)


def scores(model: str) -> str:
    """Returns what each judged score means, and which direction is better."""
    gated = load(model).rules.gated()
    return table(
        ("score", "better", "meaning"),
        [(f"`{rule.metric}`", rule.direction, rule.meaning) for rule in gated],
    )


def pictures(model: str) -> str:
    """Returns what each picture of the report shows."""
    plots: Any = load(model).plots
    captions: dict[str, str] = plots.CAPTIONS
    return table(("picture", "what it shows"), [(f"`{n}`", text) for n, text in captions.items()])
