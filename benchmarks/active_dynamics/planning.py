"""plans with many weights as in the original, and default plans for one and many rows -> rows"""

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
"""Transitions that the beliefs have observed."""
SAME: dict[str, Any] = {
    "candidates": 32,
    "iterations": 10,
    "horizon": 10,
    "elites": 10,
    "keep": 3,
    "hold": 1,
    "replan_every": 1,
}
TIMED = 2
"""Iterations of a plain plan that are timed; the time is scaled up to all of them."""
ENVIRONMENTS = (1, 4, 16, 64)
LIMITS = {1: 0.010, 16: 0.004}
"""Seconds per row, by the number of rows planned at once."""
TRIED_LIMIT = (
    "all candidates of all rows in one batch, on one thread whatever the process has;"
    " seconds are a machine's"
)
TRIED = (
    "150 was the ratio of a prototype to the original's program, whose buffers of rollouts "
    "are not in this plain loop: more than half of its time are pseudo-inverses. Closed forms"
    " in H x H matrices, all candidates in one batch and float32 are in; with 1250 weights "
    "products with a 1250 x 1250 covariance remain, which the plain loop leaves out (it looks"
    " at the diagonal alone): see the limit"
)
THREADS = (1, 2)
CHECKED = 4
TOLERANCE = 1e-2
"""Relative: single precision with 1250 weights."""


def rows(root: Path, rounds: int) -> list[Row]:
    """Returns all rows. A unit is a plan; planning uses one thread in any process."""
    with threads(1):
        result = same_work_rows(root, rounds)
    for count in THREADS:
        with threads(count):
            result += default_rows(root, rounds, count)
    return result


def same_work_rows(root: Path, rounds: int) -> list[Row]:
    """Returns rows at the original's sizes, with its pseudo-inverse and without."""
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
    name = (
        f"plan, {sizes}, fisher_a;"
        f" before: pseudo-inverses, weights apart, {TIMED} iterations, counted up"
    )
    few = f"  {fewer.belief.mean.shape[1] - 2} weights as by default; ours: variance"
    row, goal = partial(Row, unit=UNIT), Goal(150, "before")
    each = Without("candidates at once: one by one", times["fewer alone"])
    return [
        row(
            name,
            ours=times["fisher_a"],
            before=times["before"],
            limit=times["limit"],
            goal=goal,
            tried=TRIED,
        ),
        row("  before: no pseudo-inverse", ours=times["fisher_a"], before=times["no inverse"]),
        row(
            "  ours: variance",
            ours=times["variance"],
            before=times["before"],
            limit=times["variance limit"],
            goal=goal,
            tried=TRIED,
        ),
        row(
            few,
            ours=times["fewer"],
            before=times["fewer before"],
            limit=times["fewer limit"],
            without=each,
        ),
    ]


def sized(root: Path, network: dict[str, Any]) -> Sides:
    """Returns the sides at the original's planner sizes."""
    return sides_of(root, 1, network=network, train={"planner": SAME})


def default_rows(root: Path, rounds: int, thread_count: int) -> list[Row]:
    """Returns rows with the planner of params.yaml, for one and many rows at once."""
    beliefs = {count: beliefs_of(sides_of(root, count), LEARNED) for count in ENVIRONMENTS}
    plans = {str(count): own_plan(each, each.config) for count, each in beliefs.items()}
    single = beliefs[ENVIRONMENTS[0]]
    times = race(plans | {"alone": alone(single, single.config)}, rounds)
    settings = config_of(root).train.planner
    sizes = (
        f"{settings.candidates} x {settings.iterations} x H {settings.horizon}"
        f" x hold {settings.hold}"
    )
    description = f"{sizes}, process of {thread_count} thread(s)"
    return [default_row(count, description, times) for count in ENVIRONMENTS]


def default_row(count: int, sizes: str, times: dict[str, Measured]) -> Row:
    name, goal = f"default plan, {count} row(s) at once, {sizes}; per row", LIMITS.get(count)
    comparison = (
        ("candidates at once: one by one", "alone")
        if count == 1
        else ("rows at once: one row", "1")
    )
    return Row(
        name if goal else f"  {name}",
        UNIT,
        times[str(count)],
        without=Without(comparison[0], times[comparison[1]]),
        goal=None if goal is None else Goal(goal, "value"),
        tried="" if goal is None else TRIED_LIMIT,
        point=Point(f"plan, {sizes}", "rows", count),
    )


def looking_for(config: ActiveDynamicsConfig, value: str) -> ActiveDynamicsConfig:
    """Returns the config with a single acquisition value."""
    acquisition = config.train.acquisition.model_copy(update={"weights": {value: 1.0}})
    return config.model_copy(
        update={"train": config.train.model_copy(update={"acquisition": acquisition})}
    )


def own_plan(beliefs: BayesFilterLearner, config: ActiveDynamicsConfig) -> Contestant:
    """Times a plan together with its surrogate and the setup shared by candidates."""
    rows, env = len(beliefs.belief.mean), config.env
    settings, generator = config.train.planner, Generator().manual_seed(SEED)
    state = {"plan": planner.first_plan(settings, rows, env.action_size)}
    asked = replace(beliefs, config=config)

    def run() -> None:
        score = acquisition.scorer(
            asked.surrogate(slice(None)), config.train.acquisition, settings.hold
        )
        state["plan"] = planner.replan(settings, env.action_bound, score, state["plan"], generator)

    return Contestant(run, rows)


def alone(beliefs: BayesFilterLearner, config: ActiveDynamicsConfig) -> Contestant:
    """Times the same plan with candidates scored one by one."""
    settings, generator = config.train.planner, Generator().manual_seed(SEED)
    state = {"plan": planner.first_plan(settings, len(beliefs.belief.mean), config.env.action_size)}
    asked = replace(beliefs, config=config)

    def run() -> None:
        judge = acquisition.scorer(
            asked.surrogate(slice(None)), config.train.acquisition, settings.hold
        )

        def score(actions: Tensor) -> Tensor:
            return torch.cat(
                [judge(actions[:, single : single + 1]) for single in range(actions.shape[1])], 1
            )

        state["plan"] = planner.replan(
            settings, config.env.action_bound, score, state["plan"], generator
        )

    return Contestant(run, len(beliefs.belief.mean))


def products(beliefs: BayesFilterLearner, value: str) -> Contestant:
    """Times as many matrix operations as a plan needs, in products of the covariance's size."""
    single = own_plan(beliefs, looking_for(beliefs.config, value))
    with FlopCounterMode(display=False) as counter:
        single.run()
    weights = beliefs.belief.mean.shape[1] - beliefs.filter.d
    paths, size = (
        SAME["candidates"] * SAME["horizon"],
        weights if value == "fisher_a" else weights // 2,
    )
    features, matrix = torch.randn(paths, size), torch.randn(size, size)
    return repeat(lambda: features @ matrix, 2.0 * paths * size * size / counter.get_total_flops())


def plain_plan(beliefs: BayesFilterLearner, precision: reference.Precision) -> Contestant:
    """Times a plain plan, candidate by candidate; scaled up from a few iterations."""
    model, start, rng = (
        plain_planner_of(beliefs),
        beliefs.belief.mean[0, :2].float(),
        np.random.default_rng(SEED),
    )
    names = ("candidates", "horizon", "elites", "keep")
    settings = reference.Settings(iterations=TIMED, **{name: SAME[name] for name in names})

    def score(rollout: reference.Rollout) -> float:
        return reference.diagonal_drop(model, rollout, precision)

    return Contestant(
        lambda: reference.plan(model, start, score, settings, rng), TIMED / SAME["iterations"]
    )


def known_precision(beliefs: BayesFilterLearner) -> reference.Precision:
    """Returns a precision that is computed only once."""
    result = reference.of_noise(plain_planner_of(beliefs))
    return lambda _: result


def refuse_another_value(beliefs: BayesFilterLearner) -> None:
    """Compares the project's values with those of plain loops with the joint covariance.

    Raises:
        NotTheSame: it does not.
    """
    asked = replace(beliefs, config=looking_for(beliefs.config, "fisher_a"))
    surrogate, model = asked.surrogate(slice(0, 1)), plain_planner_of(beliefs)
    actions = (
        2 * torch.rand(1, CHECKED, SAME["horizon"], 2, generator=Generator().manual_seed(SEED)) - 1
    )
    for name, plainly in (("fisher_a", reference.full_drop), ("fisher_d", reference.full_gain)):
        result = own_value(name, surrogate, actions)
        expected = torch.tensor(
            [plain_value(plainly, model, surrogate.state[0], each) for each in actions[0]]
        )
        if not torch.allclose(result, expected, rtol=TOLERANCE):
            raise NotTheSame(
                f"planner: {name} is {result.tolist()}, in plain loops {expected.tolist()}"
            )


def own_value(name: str, surrogate: Surrogate, actions: Tensor) -> Tensor:
    """Computes the value of the first row's candidates before normalisation."""
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
    """Computes the plain value in double precision."""
    doubled = reference.Model(
        *(part.double() if isinstance(part, Tensor) else part for part in model)
    )
    return value(
        doubled, reference.imagined(doubled, start.double(), actions.double()), reference.of_noise
    )
