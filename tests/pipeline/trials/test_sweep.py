"""A sweep's driver: what it repeats, adopts and records, wherever it was killed."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pipeline.runtime.errors import Interrupted, LockHeld
from pipeline.runtime.processes import folder_lock
from pipeline.storage.params_file import read_params
from pipeline.storage.run_key import params_of
from pipeline.trials import page
from pipeline.trials import sweep as sweeps
from pipeline.trials.adoption import remove_preset, write_preset
from pipeline.trials.search import Row
from pipeline.trials.space import Space, read_space
from pipeline.trials.trial import Outcome, Trial, make_trial
from pipeline.trials.verdict import compare, decide
from quatrain.errors import ConfigError
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.trials.small_sweep import IQN, RATE, space_of, sweep_file
from tests.pipeline.trials.stand_ins import InventedPlace, SilentGroup, key_of

RATES = [1e-3, 2e-3, 3e-3, 4e-3]
GRID: dict[str, Any] = {
    "search": "grid",
    "trials": 4,
    "schedule": {"kind": "none"},
    "confirm": {"top": 2, "seed": 1, "seeds": 4},
    "space": {RATE: {"of": RATES}},
}
"""Trial 1 is the start again, and trial 4 has the highest rate."""


class Driver:
    """Runs a sweep of a root again and again."""

    def __init__(self, root: Path, patch: Patch, **changes: Any) -> None:
        self.root = root
        self.group = SilentGroup()
        self._path = sweep_file(root, GRID | changes)
        self._patch = patch
        patch.setattr("pipeline.trials.trial._key", key_of)

    def run(
        self, outcome: Callable[[Trial], Outcome], dies_at: int = 99, draws: bool = False
    ) -> list[str]:
        """The keys of the trials that were begun; the driver dies when it has begun so many."""
        if not draws:
            self._patch.setattr(page, "draw", lambda *_: {})
        place = InventedPlace(self.root, lambda trial: [outcome(trial)], dies_at)
        self._patch.setattr(sweeps, "Group", lambda *_: self.group)
        with suppress(Interrupted):
            self.code = sweeps.run(read_space(self.root, self._path), place)
        return place.begun

    @property
    def labels(self) -> list[str]:
        """Under which the group was told of trials that ended."""
        return sorted({call.args[1] for call in self.group.ended.mock_calls})

    @property
    def preset(self) -> Path:
        return self.root / "presets" / "tried.yaml"


def higher(trial: Trial) -> Outcome:
    """The higher the rate, the better, whatever the seed; seeds differ more than rates."""
    score = trial.params.allo.train.learning_rate * 100 + trial.params.seed
    return Outcome("finished", {"cosine_mean": score}, seconds=2.0)


def lower(trial: Trial) -> Outcome:
    """The start has the lowest rate of all."""
    return Outcome("finished", {"cosine_mean": -trial.params.allo.train.learning_rate})


def lucky(trial: Trial) -> Outcome:
    """Higher rates were lucky in the search: other seeds do not repeat it."""
    luck = -0.9 if trial.params.seed % 2 else 1.0
    score = luck * trial.params.allo.train.learning_rate * 100
    return Outcome("finished", {"cosine_mean": score})


def failing(trial: Trial) -> Outcome:
    """No repetition with seed 2 succeeds."""
    return Outcome("failed", reason="bug") if trial.params.seed == 2 else higher(trial)


def refusing(trial: Trial) -> Outcome:
    """Only the start has a score."""
    is_start = trial.params.allo.train.learning_rate == 1e-3
    return higher(trial) if is_start else Outcome("refused", reason="no")


def test_without_confirm_the_best_of_the_search_is_adopted(root: Path, monkeypatch: Patch):
    driver = Driver(root, monkeypatch, confirm=None)
    assert len(driver.run(higher)) == 4
    adopted = read_params(root, "tried")
    assert (adopted.seed, adopted.allo.train.learning_rate) == (0, 4e-3)


def test_the_best_is_adopted_if_its_repetitions_are_better(
    root: Path, monkeypatch: Patch, capsys: Capture
):
    driver = Driver(root, monkeypatch)
    begun = driver.run(higher)
    assert driver.code == 0
    # Trial 1 has the values of the start, so neither it nor its repetitions run.
    assert len(begun) == len(set(begun)) == 4 + 4 * 3
    repeated = [f"000{number}-seed-{seed}" for seed in (1, 2, 3, 4) for number in (0, 4, 3)]
    assert driver.labels == sorted([*(f"000{n}" for n in range(5)), *repeated])
    best = [("sweep/best", count, pytest.approx(max(count - 1, 1) / 10)) for count in range(1, 6)]
    driver.group.metrics.assert_called_once_with(best)
    pages = [root / "reports" / "sweeps" / "tried" / name for name in ("trials.json", "sweep.html")]
    driver.group.finish.assert_called_once_with("FINISHED", pages)
    adopted = read_params(root, "tried")
    assert (adopted.seed, adopted.allo.train.learning_rate, adopted.allo.seeds) == (1, 4e-3, 3)
    out = capsys.readouterr().out
    by = "+0.3 (+0.3 to +0.3) cosine_mean, in 4 of 4 seeds"
    assert f"\ntrial 4 against the start: better: {by}\n" in out
    assert "presets/tried.yaml: `make repro PRESET=tried MODELS=allo`" in out


@pytest.mark.parametrize("dies_at", [1, 9])
def test_a_killed_sweep_continues_and_nothing_that_ended_runs_again(
    dies_at: int, root: Path, monkeypatch: Patch, capsys: Capture
):
    driver = Driver(root, monkeypatch)
    begun = driver.run(higher, dies_at)
    driver.group.finish.assert_called_once_with("KILLED", [])
    ended = [path.parent.name for path in root.glob(".state/trials/*/outcome.json")]
    driver.group = SilentGroup()
    again = driver.run(higher)
    assert not set(ended) & set(again)
    assert len(set(begun + again)) == 4 + 4 * 3
    assert len(driver.labels) == 5 + 4 * 3, "a trial that ended before is not recorded"
    assert "trial 4 against the start: better: +0.3" in capsys.readouterr().out
    assert driver.run(higher) == []


@pytest.mark.parametrize(
    ("outcome", "changes", "said", "repeated", "is_kept"),
    [
        (lucky, {}, "found: trial 4 against the start: undecided after 4 seeds", 4 * 3, False),
        (failing, {}, "nothing was found: the start, or all others, could not be", 4 * 3, True),
        (refusing, {}, "nothing was found: no other trial than the start has a score", 0, True),
        (lambda _: Outcome("failed", reason="x"), {}, "nothing was found: no trial has a", 0, True),
        (lower, {"confirm": None}, "trial 0 has the best score of the search", 0, False),
    ],
    ids=["luck", "failed", "start alone", "no score", "start is best"],
)
def test_no_preset_is_written_where_nothing_is_better(
    outcome: Callable[[Trial], Outcome],
    changes: dict[str, Any],
    said: str,
    repeated: int,
    is_kept: bool,
    root: Path,
    monkeypatch: Patch,
    capsys: Capture,
):
    driver = Driver(root, monkeypatch, **changes)
    mark = "# Written by `make sweep SWEEP=sweeps/tried.yaml`: trial 9.\npreset: tried\n"
    driver.preset.write_text(mark)
    assert len(driver.run(outcome)) == 4 + repeated
    assert said in capsys.readouterr().out
    assert driver.preset.exists() == is_kept
    assert driver.code == int("no trial has a" in said)


def repeated(*sides: list[float]) -> dict[int, list[Outcome]]:
    """Repetitions of the start, whose score is 0, and of trials with these scores."""
    scores = enumerate(([0.0] * len(sides[0]), *sides))
    return {
        n: [Outcome("finished", {"cosine_mean": score}) for score in side] for n, side in scores
    }


def test_who_compares_more_trials_needs_a_clearer_difference(tmp_path: Path):
    space = space_of(tmp_path)
    clear = [0.0, 1.0, 1.0, 1.0, 2.0]  # 3.16 standard errors; t is 2.78 at 5 %, 3.50 at 2.5 %
    assert compare(space, repeated(clear))[1].verdict == "better"
    assert compare(space, repeated(clear, [0.0] * 5))[1].verdict == "undecided"


def test_the_most_different_of_those_that_are_better_is_adopted(tmp_path: Path):
    space = space_of(tmp_path)
    rows = [Row(number, {}, "finished", 0.0, None, "") for number in range(5)]
    sides = repeated([0.3] * 5, [0.4] * 5, [-9.0, 9.0, 9.0, 9.0, 9.0], [-0.3] * 5)
    assert decide(space, rows, sides).best == rows[2]
    lower = space._replace(rule=space.rule._replace(direction="lower"))
    assert decide(lower, rows, sides).best == rows[4]


def test_a_diverged_repetition_gains_nothing_and_its_seed_is_not_adopted(tmp_path: Path):
    sides = repeated([0.3] * 20)
    sides[1][0] = Outcome("diverged")
    rows = [Row(number, {}, "finished", 0.0, None, "") for number in range(2)]
    result = decide(space_of(tmp_path), rows, sides)
    assert (result.best, result.seed) == (rows[1], 2)
    assert result.differences[1].each[0] < 0


def test_trials_that_params_refuse_do_not_hinder_a_continued_sweep(root: Path, monkeypatch: Patch):
    samples = {"train.record_every": {"of": [100, 500]}, "train.batch_size": {"of": [256, 300_000]}}
    driver = Driver(root, monkeypatch, space=samples)
    driver.run(higher)
    assert driver.run(higher) == []


def test_what_may_change_while_a_sweep_goes_on(tmp_path: Path):
    def key(**changes: Any) -> str:
        return sweeps.sweep_key(space_of(tmp_path, **changes))

    space = space_of(tmp_path)
    assert key(trials=9, confirm=None, retries=0) == sweeps.sweep_key(space)
    assert key(gpus=0.5) == key(gpus=1)
    others = [key(seed=1), key(search="tpe"), key(cpus=2), key(gpus=1), key(gpus=2)]
    others.append(sweeps.sweep_key(space._replace(raw=space.raw | {"deterministic": False})))
    assert len({*others, sweeps.sweep_key(space)}) == 7


def test_a_second_driver_of_the_same_sweep_is_refused(root: Path, monkeypatch: Patch):
    with folder_lock(root / ".state" / "sweeps" / "tried"), pytest.raises(LockHeld, match="tried"):
        Driver(root, monkeypatch).run(higher)


def test_the_page_holds_every_trial_and_no_markup_of_reasons(
    root: Path, monkeypatch: Patch, capsys: Capture
):
    def odd(trial: Trial) -> Outcome:
        is_odd = trial.params.allo.train.learning_rate == 2e-3
        return Outcome("failed", reason="<script>|x") if is_odd else higher(trial)

    Driver(root, monkeypatch).run(odd, draws=True)
    numbers = re.findall(r"^(\d) ", capsys.readouterr().out, re.MULTILINE)
    assert numbers == [*"04312"], "the start, the best, those without a score"
    folder = root / "reports" / "sweeps" / "tried"
    rows = json.loads((folder / "trials.json").read_text())
    assert [row["state"] for row in rows] == ["finished", "finished", "failed", *["finished"] * 2]
    html = (folder / "sweep.html").read_text()
    assert "<script" not in html
    assert html.count("data:image/png;base64,") == 3, "history, parallel coordinates, slices"


# The preset that it writes is the trial that it names.

HARD = {"kind": "hard", "copy_every": 50}
LINEAR = {"kind": "linear", "end": 0.1}


def searched(tmp_path: Path, root: Path, key: str, values: list[Any], **changes: Any) -> Space:
    return space_of(tmp_path, root, **changes, space={key: {"of": values}})


def trial_of(space: Space, seed: int | None = None, **values: Any) -> Trial:
    raw = space.trial_raw(values, seed)
    return make_trial(space.root, space.sweep.model, raw)


def assert_is_the_trial(space: Space, trial: Trial) -> None:
    """What `make repro PRESET=NAME` reads is what the trial ran with, but for the name."""
    adopted = read_params(space.root, space.name)
    assert adopted.preset == "tried"
    assert params_of(adopted, trial.model) == params_of(trial.params, trial.model)


CASES: list[tuple[str, list[Any], Any, dict[str, Any]]] = [
    (RATE, [1e-3, 1.2345678901234567e-05], 1.2345678901234567e-05, {}),
    ("train.dual_clip", [100.0, None], None, {}),
    ("train.target", [{"kind": "polyak", "rate": 0.01}, HARD], HARD, IQN),
    # The preset of the start has `over_transitions` of this section.
    ("train.acting.epsilon", [LINEAR, LINEAR | {"end": 0.2}], LINEAR, IQN),
]


@pytest.mark.parametrize(
    ("key", "values", "value", "changes"), CASES, ids=lambda case: str(case)[:25]
)
def test_the_preset_is_the_trial(
    key: str, values: list[Any], value: Any, changes: dict[str, Any], tmp_path: Path, root: Path
):
    space = searched(tmp_path, root, key, values, **changes, cpus=3)
    best = trial_of(space, 7, **{key: value})
    write_preset(space, best, 4)
    head, _, _ = (root / "presets" / "tried.yaml").read_text().partition("\n")
    assert head == "# Written by `make sweep SWEEP=sweeps/tried.yaml`: trial 4."
    assert_is_the_trial(space, best)
    assert read_params(root, "tried").seed == 7


def test_a_preset_of_someone_else_is_refused_and_kept(tmp_path: Path, root: Path):
    space = space_of(tmp_path, root)
    best = trial_of(space)
    remove_preset(space)  # which is not there
    path = root / "presets" / "tried.yaml"
    path.write_text("preset: tried\nseed: 4\n")
    reason = "^presets/tried.yaml is there, and this sweep did not write it; rename sweeps/tried.ya"
    for refused in (lambda: remove_preset(space), lambda: write_preset(space, best, 1)):
        with pytest.raises(ConfigError, match=reason):
            refused()
    assert path.read_text() == "preset: tried\nseed: 4\n"


def test_what_cannot_be_made_a_preset_any_more_is_refused_and_nothing_is_written(
    tmp_path: Path, root: Path
):
    space = space_of(tmp_path, root)
    best = trial_of(space, **{RATE: 2e-3})
    params = root / "params.yaml"
    params.write_text(params.read_text().replace("    d: 11 ", "    d: 7 "))
    line = r"^presets/tried.yaml would not give trial 2; params, inputs or code were changed while"
    with pytest.raises(ConfigError, match=line):
        write_preset(space, best, 2)
    assert not (root / "presets" / "tried.yaml").exists()
