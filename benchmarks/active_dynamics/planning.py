"""rows about plans: of many weights as the original's planner makes them, and the default's, of one row and of many."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from benchmarks.active_dynamics.sides import Sides, beliefs_of, config_of, plain_planner_of, sides_of
from benchmarks.harness import Contestant, Times, race
from benchmarks.reference import active_dynamics_planner as reference
from benchmarks.table import Goal, NotTheSame, Row
from benchmarks.torch_threads import threads
from quatrain.models.active_dynamics.agents import acquisition, planner
from quatrain.models.active_dynamics.agents.filter.rows import FilterRows
from quatrain.models.active_dynamics.agents.surrogate import Surrogate
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig

UNIT = "ms/step"
SEED = 0
SIDE = 25
"""625 centres: 1250 weights."""
MANY: dict[str, Any] = {"rbf": {"side": SIDE, "length": 0.25}}
LEARNED = 12
"""Transitions that beliefs have met."""
SAME: dict[str, Any] = {
    "candidates": 32, "iterations": 10, "horizon": 10, "elites": 10, "keep": 3, "hold": 1, "replan_every": 1,
}  # fmt: skip
ENVIRONMENTS = (1, 16)
LIMITS = {1: 0.010, 16: 0.004}
"""Seconds a row, by rows that are planned for at once."""
THREADS = (1, 2)
CHECKED = 4
TOLERANCE = 1e-2
"""Relative: single precision with 1250 weights."""


def rows(root: Path, rounds: int) -> list[Row]:
    """A step of a row is a plan."""
    found = []
    for count in THREADS:
        with threads(count):
            found += same_work_rows(root, rounds, count)
            found += default_rows(root, rounds, count)
    return found


def same_work_rows(root: Path, rounds: int, thread_count: int) -> list[Row]:
    """The original's sizes and value; its planner is timed with its own pseudo-inverse, and without any."""
    beliefs, fewer = (beliefs_of(sized(root, network), LEARNED) for network in (MANY, {}))
    for each in (beliefs, fewer):
        refuse_another_value(each)
    times = race(
        {
            "before": plain_plan(beliefs, reference.of_projection),
            "no inverse": plain_plan(beliefs, known_precision(beliefs)),
            "fewer before": plain_plan(fewer, reference.of_projection),
            "fewer": own_plan(fewer, looking_for(fewer.config, "variance")),
            **{name: own_plan(beliefs, looking_for(beliefs.config, name)) for name in ("fisher_a", "variance")},
        },
        rounds,
    )
    sizes = f"{SAME['candidates']} x {SAME['iterations']} x H {SAME['horizon']}, {2 * SIDE**2} weights"
    name = f"plan, {sizes}, fisher_a, {thread_count} thread(s); before: pseudo-inverses, weights apart"
    few = f"  {fewer.belief.mean.shape[1] - 2} weights as by default; ours: variance"
    row = partial(Row, seed_item="-", claimed="-", unit=UNIT)
    return [
        row(name, ours=times["fisher_a"], before=times["before"], goal=Goal(150, "before")),
        row("  before: no pseudo-inverse", ours=times["fisher_a"], before=times["no inverse"]),
        row("  ours: variance", ours=times["variance"], before=times["before"], goal=Goal(150, "before")),
        row(few, ours=times["fewer"], before=times["fewer before"]),
    ]


def sized(root: Path, network: dict[str, Any]) -> Sides:
    """As much to plan as in the original."""
    return sides_of(root, 1, network=network, train={"planner": SAME})


def default_rows(root: Path, rounds: int, thread_count: int) -> list[Row]:
    """As params.yaml plans, for one row and for many at once."""
    each = {count: sides_of(root, count) for count in ENVIRONMENTS}
    plans = {str(count): own_plan(beliefs_of(sides, LEARNED), sides.config) for count, sides in each.items()}
    times = race(plans, rounds)
    chosen = config_of(root).train.planner
    sizes = f"{chosen.candidates} x {chosen.iterations} x H {chosen.horizon} x hold {chosen.hold}"
    return [default_row(count, f"{sizes}, {thread_count} thread(s)", times[str(count)]) for count in ENVIRONMENTS]


def default_row(count: int, sizes: str, times: Times) -> Row:
    name = f"default plan, {count} row(s) at once, {sizes}; per row"
    return Row(name, "-", "-", UNIT, times, goal=Goal(LIMITS[count], "limit"))


def looking_for(config: ActiveDynamicsConfig, value: str) -> ActiveDynamicsConfig:
    """One value alone."""
    acquisition = config.train.acquisition.model_copy(update={"weights": {value: 1.0}})
    return config.model_copy(update={"train": config.train.model_copy(update={"acquisition": acquisition})})


def own_plan(beliefs: FilterRows, config: ActiveDynamicsConfig) -> Contestant:
    """With all that a plan begins with: what is seen of the beliefs, and what their candidates share."""
    rows, env = len(beliefs.belief.mean), config.env
    chosen, generator = config.train.planner, Generator().manual_seed(SEED)
    state = {"plan": planner.first_plan(chosen, rows, env.action_size)}
    asked = replace(beliefs, config=config)

    def run() -> None:
        score = acquisition.scorer(asked.surrogate(slice(None)), config.train.acquisition, chosen.hold)
        state["plan"] = planner.replan(chosen, env.action_bound, score, state["plan"], generator)

    return Contestant(run, rows)


def plain_plan(beliefs: FilterRows, precision: reference.Precision) -> Contestant:
    """Candidate by candidate."""
    model, start, rng = plain_planner_of(beliefs), beliefs.belief.mean[0, :2].float(), np.random.default_rng(SEED)
    names = ("candidates", "iterations", "horizon", "elites", "keep")
    chosen = reference.Settings(**{name: SAME[name] for name in names})

    def score(rollout: reference.Rollout) -> float:
        return reference.diagonal_drop(model, rollout, precision)

    return Contestant(lambda: reference.plan(model, start, score, chosen, rng))


def known_precision(beliefs: FilterRows) -> reference.Precision:
    """Worked out once."""
    found = reference.of_noise(plain_planner_of(beliefs))
    return lambda _: found


def refuse_another_value(beliefs: FilterRows) -> None:
    """With all weights' parts in each other, and the true noise, the plain loop must find the project's values.

    Raises:
        NotTheSame: it does not.
    """
    asked = replace(beliefs, config=looking_for(beliefs.config, "fisher_a"))
    surrogate, model = asked.surrogate(slice(0, 1)), plain_planner_of(beliefs)
    actions = 2 * torch.rand(1, CHECKED, SAME["horizon"], 2, generator=Generator().manual_seed(SEED)) - 1
    for name, plainly in (("fisher_a", reference.full_drop), ("fisher_d", reference.full_gain)):
        found = own_value(name, surrogate, actions)
        expected = torch.tensor([plain_value(plainly, model, surrogate.state[0], each) for each in actions[0]])
        if not torch.allclose(found, expected, rtol=TOLERANCE):
            raise NotTheSame(f"planner: {name} is {found.tolist()}, in plain loops {expected.tolist()}")


def own_value(name: str, surrogate: Surrogate, actions: Tensor) -> Tensor:
    """Of candidates of the first row, before it is divided by the largest."""
    hold = 1
    return acquisition.VALUES[name](surrogate, hold)(acquisition.imagine(surrogate, actions, hold))[0]


def plain_value(
    value: Callable[[reference.Model, reference.Rollout, reference.Precision], float],
    model: reference.Model,
    start: Tensor,
    actions: Tensor,
) -> float:
    """In double precision."""
    doubled = reference.Model(*(part.double() if isinstance(part, Tensor) else part for part in model))
    return value(doubled, reference.imagined(doubled, start.double(), actions.double()), reference.of_noise)
