"""The pages of docs/: each is in the site, and a learner's page has its plots and parameters."""

import re

import pytest

from quatrain.registry import MODELS
from tests.conftest import ROOT

DOCS = ROOT / "docs"
SITE = (ROOT / "mkdocs.yml").read_text()


def test_the_site_has_every_page_and_names_no_other():
    listed = set(re.findall(r"[\w/]+\.md$", SITE, re.MULTILINE)) - {"index.md"}
    assert listed == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}


@pytest.mark.parametrize("model", MODELS)
def test_a_learners_page_has_its_plots_and_its_parameters(model: str):
    page = (DOCS / "learners" / f"{model}.md").read_text()
    code = (ROOT / "src" / "quatrain" / "models" / model / "plots.py").read_text()
    drawn = re.findall(r'"(\w+)"(?:: |\] = )[\w.]*draw_', code)
    assert drawn
    plots = page.partition("## Plots")[2].partition("## Results")[0]
    assert sorted(re.findall(r"^\* \*\*(\w+)\*\*", plots, re.MULTILINE)) == sorted(drawn)
    assert f"<!-- parameters: {model} -->\n" in page
    assert "https://arxiv.org/abs/" in page
