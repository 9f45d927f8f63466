"""Tests the table of README.md."""

import pytest

from pipeline.judging.scores import NotFresh
from pipeline.reporting import scores_page
from pipeline.reporting.scores_page import BEGIN, END
from quatrain.errors import DataError
from tests.conftest import ROOT
from tests.pipeline.scored_workspace import Workspace


def test_the_readme_gets_the_table_of_the_stored_scores_and_their_machine(space: Workspace):
    page = space.root / "README.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\n## More\n")
    space.score(cosine_mean=0.994)
    scores_page.write_page(space.root)
    text = page.read_text()
    assert text.startswith(f"# Title\n\n{BEGIN}\n\n| model | metric |")
    assert "| allo | cosine_mean | 0.9940 | 0.9950 | -0.0010 | 0.005 | ok |\n" in text
    assert text.endswith(
        f"\n\nMachine of the baselines: AMD (family 25, model 1), 2 threads.\n\n{END}\n\n## More\n"
    )
    space.score(preset="my")
    with pytest.raises(NotFresh, match=r"^the scores are those of allo, preset 'my'; run `make"):
        scores_page.write_page(space.root)
    space.score()
    page.write_text("# Title\n")
    with pytest.raises(DataError, match=f"README.md: needs the lines {BEGIN} and {END}"):
        scores_page.write_page(space.root)


def test_the_readme_of_the_project_has_the_scores_and_baselines_beside_it():
    page = (ROOT / scores_page.PAGE).read_text()
    assert scores_page.with_table(page, scores_page.judge_stored(ROOT)) == page
