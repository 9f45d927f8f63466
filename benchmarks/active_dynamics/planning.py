"""rows about plans: of many weights as the original's planner makes them, and the default's, of one row and of many."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.active_dynamics.sides import (
    Sides,
    beliefs_of,
    config_of,
    plain_planner_of,
    sides_of,
)
from benchmarks.harness import Contestant, Measured, race
from benchmarks.reference import active_dynamics_planner as reference
from benchmarks.repeat import repeat
from benchmarks.table import Goal, NotTheSame, Point, Row, Without
from benchmarks.torch_threads import threads
from quatrain.models.active_dynamics import acquisition, planner
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import Surrogate

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
TIMED = 2
"""Iterations of a plain plan that are timed, and counted up: each takes as long as any other."""
ENVIRONMENTS = (1, 4, 16, 64)
LIMITS = {1: 0.010, 16: 0.004}
"""Seconds a row, by rows that are planned for at once."""
TRIED_LIMIT = "all candidates of all rows in one batch, on one thread whatever the process has; seconds are a machine's"
TRIED = (
    "150 was the ratio of a prototype to the original's program, whose buffers of rollouts are not in this plain loop: "
    "more than half of its time are pseudo-inverses. Closed forms in H x H matrices, all candidates in one batch and "
    "float32 are in; with 1250 weights products with a 1250 x 1250 covariance remain, which the plain loop leaves out "
    "(it looks at the diagonal alone): see the limit"
)
THREADS = (1, 2)
CHECKED = 4
TOLERANCE = 1e-2
"""Relative: single precision with 1250 weights."""


def rows(root: Path, rounds: int) -> list[Row]:
    """A step of a row is a plan. Planning takes one thread, however many the process has."""
    with threads(1):
        found = same_work_rows(root, rounds)
    for count in THREADS:
        with threads(count):
            found += default_rows(root, rounds, count)
    return found


def same_work_rows(root: Path, rounds: int) -> list[Row]:
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
            "fewer alone": alone(fewer, looking_for(fewer.config, "variance")),
            "fewer limit": products(fewer, "variance"),
            **{
                name: own_plan(beliefs, looking_for(beliefs.config, name))
                for name in ("fisher_a", "variance")
            },
            "limit": products(beliefs, "fisher_a"),
            "variance limit": products(beliefs, "variance"),
        },
        rounds,
    )
    sizes = (
        f"{SAME['candidates']} x {SAME['iterations']} x H {SAME['horizon']}, {2 * SIDE**2} weights"
    )
    name = f"plan, {sizes}, fisher_a; before: pseudo-inverses, weights apart, {TIMED} iterations, counted up"
    few = f"  {fewer.belief.mean.shape[1] - 2} weights as by default; ours: variance"
    row, goal = partial(Row, unit=UNIT), Goal(150, "before")
    each = Without("candidates at once: one by one", times["fewer alone"])
    return [
        row(name, ours=times["fisher_a"], before=times["before"], limit=times["limit"], goal=goal, tried=TRIED),
        row("  before: no pseudo-inverse", ours=times["fisher_a"], before=times["no inverse"]),
        row(
            "  ours: variance", ours=times["variance"], before=times["before"], limit=times["variance limit"],
            goal=goal, tried=TRIED,
        ),
        row(few, ours=times["fewer"], before=times["fewer before"], limit=times["fewer limit"], without=each),
    ]  # fmt: skip


def sized(root: Path, network: dict[str, Any]) -> Sides:
    """As much to plan as in the original."""
    return sides_of(root, 1, network=network, train={"planner": SAME})


def default_rows(root: Path, rounds: int, thread_count: int) -> list[Row]:
    """As params.yaml plans, for one row and for many at once."""
    beliefs = {count: beliefs_of(sides_of(root, count), LEARNED) for count in ENVIRONMENTS}
    plans = {str(count): own_plan(each, each.config) for count, each in beliefs.items()}
    one = beliefs[ENVIRONMENTS[0]]
    times = race(plans | {"alone": alone(one, one.config)}, rounds)
    chosen = config_of(root).train.planner
    sizes = f"{chosen.candidates} x {chosen.iterations} x H {chosen.horizon} x hold {chosen.hold}"
    told = f"{sizes}, process of {thread_count} thread(s)"
    return [default_row(count, told, times) for count in ENVIRONMENTS]


def default_row(count: int, sizes: str, times: dict[str, Measured]) -> Row:
    name, goal = f"default plan, {count} row(s) at once, {sizes}; per row", LIMITS.get(count)
    taken = (
        ("candidates at once: one by one", "alone")
        if count == 1
        else ("rows at once: one row", "1")
    )
    return Row(
        name if goal else f"  {name}", UNIT, times[str(count)], without=Without(taken[0], times[taken[1]]),
        goal=None if goal is None else Goal(goal, "value"), tried="" if goal is None else TRIED_LIMIT,
        point=Point(f"plan, {sizes}", "rows", count),
    )  # fmt: skip


def looking_for(config: ActiveDynamicsConfig, value: str) -> ActiveDynamicsConfig:
    """One value alone."""
    acquisition = config.train.acquisition.model_copy(update={"weights": {value: 1.0}})
    return config.model_copy(
        update={"train": config.train.model_copy(update={"acquisition": acquisition})}
    )


def own_plan(beliefs: BayesFilterLearner, config: ActiveDynamicsConfig) -> Contestant:
    """With all that a plan begins with: what is seen of the beliefs, and what their candidates share."""
    rows, env = len(beliefs.belief.mean), config.env
    chosen, generator = config.train.planner, Generator().manual_seed(SEED)
    state = {"plan": planner.first_plan(chosen, rows, env.action_size)}
    asked = replace(beliefs, config=config)

    def run() -> None:
        score = acquisition.scorer(
            asked.surrogate(slice(None)), config.train.acquisition, chosen.hold
        )
        state["plan"] = planner.replan(chosen, env.action_bound, score, state["plan"], generator)

    return Contestant(run, rows)


def alone(beliefs: BayesFilterLearner, config: ActiveDynamicsConfig) -> Contestant:
    """The same, but each candidate is judged by itself."""
    chosen, generator = config.train.planner, Generator().manual_seed(SEED)
    state = {"plan": planner.first_plan(chosen, len(beliefs.belief.mean), config.env.action_size)}
    asked = replace(beliefs, config=config)

    def run() -> None:
        judge = acquisition.scorer(
            asked.surrogate(slice(None)), config.train.acquisition, chosen.hold
        )

        def score(actions: Tensor) -> Tensor:
            return torch.cat(
                [judge(actions[:, one : one + 1]) for one in range(actions.shape[1])], 1
            )

        state["plan"] = planner.replan(
            chosen, config.env.action_bound, score, state["plan"], generator
        )

    return Contestant(run, len(beliefs.belief.mean))


def products(beliefs: BayesFilterLearner, value: str) -> Contestant:
    """All products of matrices that a plan takes, as products of one matrix whose size is that of the covariance."""
    one = own_plan(beliefs, looking_for(beliefs.config, value))
    with FlopCounterMode(display=False) as counter:
        one.run()
    weights = beliefs.belief.mean.shape[1] - beliefs.filter.d
    paths, size = (
        SAME["candidates"] * SAME["horizon"],
        weights if value == "fisher_a" else weights // 2,
    )
    features, matrix = torch.randn(paths, size), torch.randn(size, size)
    return repeat(lambda: features @ matrix, 2.0 * paths * size * size / counter.get_total_flops())


def plain_plan(beliefs: BayesFilterLearner, precision: reference.Precision) -> Contestant:
    """Candidate by candidate; some iterations, counted up."""
    model, start, rng = (
        plain_planner_of(beliefs),
        beliefs.belief.mean[0, :2].float(),
        np.random.default_rng(SEED),
    )
    names = ("candidates", "horizon", "elites", "keep")
    chosen = reference.Settings(iterations=TIMED, **{name: SAME[name] for name in names})

    def score(rollout: reference.Rollout) -> float:
        return reference.diagonal_drop(model, rollout, precision)

    return Contestant(
        lambda: reference.plan(model, start, score, chosen, rng), TIMED / SAME["iterations"]
    )


def known_precision(beliefs: BayesFilterLearner) -> reference.Precision:
    """Worked out once."""
    found = reference.of_noise(plain_planner_of(beliefs))
    return lambda _: found


def refuse_another_value(beliefs: BayesFilterLearner) -> None:
    """With all weights' parts in each other, and the true noise, the plain loop must find the project's values.

    Raises:
        NotTheSame: it does not.
    """
    asked = replace(beliefs, config=looking_for(beliefs.config, "fisher_a"))
    surrogate, model = asked.surrogate(slice(0, 1)), plain_planner_of(beliefs)
    actions = (
        2 * torch.rand(1, CHECKED, SAME["horizon"], 2, generator=Generator().manual_seed(SEED)) - 1
    )
    for name, plainly in (("fisher_a", reference.full_drop), ("fisher_d", reference.full_gain)):
        found = own_value(name, surrogate, actions)
        expected = torch.tensor(
            [plain_value(plainly, model, surrogate.state[0], each) for each in actions[0]]
        )
        if not torch.allclose(found, expected, rtol=TOLERANCE):
            raise NotTheSame(
                f"planner: {name} is {found.tolist()}, in plain loops {expected.tolist()}"
            )


def own_value(name: str, surrogate: Surrogate, actions: Tensor) -> Tensor:
    """Of candidates of the first row, before it is divided by the largest."""
    hold = 1
    return acquisition.VALUES[name](surrogate, hold)(acquisition.imagine(surrogate, actions, hold))[
        0
    ]


def plain_value(
    value: Callable[[reference.Model, reference.Rollout, reference.Precision], float],
    model: reference.Model,
    start: Tensor,
    actions: Tensor,
) -> float:
    """In double precision."""
    doubled = reference.Model(
        *(part.double() if isinstance(part, Tensor) else part for part in model)
    )
    return value(
        doubled, reference.imagined(doubled, start.double(), actions.double()), reference.of_noise
    )
