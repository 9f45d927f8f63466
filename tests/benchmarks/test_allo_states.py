"""Costs of maps of several sizes are measured, stored, and measured once."""

import json
from pathlib import Path

import pytest

from benchmarks.allo import states
from tests.conftest import SMALL, params_with


@pytest.mark.full
def test_each_part_of_a_map_is_timed_and_a_map_that_is_done_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(states, "params_for", lambda *_: params_with({"allo": SMALL["allo"]}))
    results = tmp_path / "states.json"
    arguments = ["hall, 1,000", "--results", str(results)]
    assert states.main(arguments) == 0
    stored = json.loads(results.read_text())["maps"]["hall, 1,000"]
    assert set(stored["seconds"]) == {"collect", "truth", "training", "evaluate", "plots"}
    assert stored["states"] == 104
    assert "random_unscaled" in stored["scores"]
    assert "| hall, 1,000 | two | 4,000" in capsys.readouterr().out
    monkeypatch.setattr(states, "measure", lambda *_: pytest.fail("measured again"))
    assert states.main(arguments) == 0
    with pytest.raises(SystemExit):
        states.main(["castle"])


def test_the_maps_have_the_sizes_that_their_names_say():
    for name in states.MAPS:
        params = states.params_for(Path.cwd(), name, 4000, 1024)
        expected = int(name.partition(", ")[2].replace(",", ""))
        assert expected <= params.allo.env.map.walls.size
        assert (~params.allo.env.map.walls).sum() == pytest.approx(expected, rel=0.05)
