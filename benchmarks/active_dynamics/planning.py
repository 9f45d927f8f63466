"""plans with many weights as in the original, and default plans of one and many rows -> rows"""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Generator

from benchmarks.active_dynamics.vae import config_of
from benchmarks.harness import Goal, Row
from benchmarks.reference import active_dynamics_planner as reference
from benchmarks.torch_rows import Work, check_same, measured_row, products
from quatrain.frameworks.torch.threads import threads
from quatrain.models.active_dynamics import acquisition, planner
from quatrain.models.active_dynamics.bayes_filter.filter import weights
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import Observation

SEED = 0
SIDE = 25
"""625 centres: 1250 weights."""
LEARNED = 12
"""Transitions of the warm-up that beliefs have observed."""
SAME = {"candidates": 32, "iterations": 10, "horizon": 10, "elites": 10, "keep": 3}
"""Sizes of the original's planner."""
TIMED = 2
"""Iterations of a plain plan that are timed; the time is scaled up to all of them."""
LIMITS = {1: 0.010, 16: 0.004}
"""Seconds per row, by the number of rows planned at once."""
TRIED_LIMIT = "all candidates of all rows in one batch, on one thread; seconds are a machine's"
TRIED = (
    "150 was a prototype's ratio to the original's program, with its buffers of rollouts. Closed"
    " forms in H x H matrices, one batch and float32 are in; what remains are products with a"
    " 1250 x 1250 covariance, of which the plain loop takes the diagonal alone: see the limit"
)
THREADS = (1, 2)
CHECKED = 4
"""Candidates whose values are compared, within TOLERANCE: single precision, 1250 weights."""
TOLERANCE = 1e-2


def rows(root: Path, rounds: int) -> list[Row]:
    """Measures plans, counted by row."""
    row = partial(measured_row, "ms/step", rounds)
    learners = {rows: beliefs_of(config_of(root, rows)) for rows in LIMITS}
    with threads(1):
        result = same_work_rows(row, root)
    for count in THREADS:
        with threads(count):
            result += [default_row(row, learners, rows, count) for rows in LIMITS]
    return result


def same_work_rows(row: partial[Row], root: Path) -> list[Row]:
    """Measures plans at the original's sizes."""
    learners = {value: many_weights(root, value) for value in ("fisher_a", "variance")}
    refuse_another_value(learners["fisher_a"])
    count, paths = 2 * SIDE**2, SAME["candidates"] * SAME["horizon"]
    sizes = f"{SAME['candidates']} x {SAME['iterations']} x H {SAME['horizon']}, {count} weights"
    name = f"plan, {sizes}, fisher_a; before: pseudo-inverses, weights apart, {TIMED} iterations"
    titles = {"fisher_a": f"{name}, counted up", "variance": "  ours: variance"}
    result = []
    for value, learner in learners.items():
        works = {"ours": own_plan(learner), "before": plain_plan(learner)}
        size = count if value == "fisher_a" else count // 2
        works["limit"], share = products(works["ours"], paths, size, size)
        units = {"before": TIMED / SAME["iterations"], "limit": share}
        goal = Goal(150, "before")
        result.append(row(titles[value], works, "", units, goal=goal, tried=TRIED))
    return result


def many_weights(root: Path, value: str) -> BayesFilterLearner:
    """Returns beliefs about many weights, with the original's planner and an acquisition value."""
    network = {"rbf": {"side": SIDE, "length": 0.25}}
    settings = SAME | {"hold": 1, "replan_every": 1}
    acquisition = {"weights": {"variance": 0.0, value: 1.0}}
    train = {"planner": settings, "acquisition": acquisition}
    return beliefs_of(config_of(root, 1, network=network, train=train))


def default_row(
    row: partial[Row], learners: dict[int, BayesFilterLearner], rows: int, thread_count: int
) -> Row:
    """Measures the planner of params.yaml for some rows at once."""
    learner = learners[rows]
    config = learner.config.train.planner
    sizes = f"{config.candidates} x {config.iterations} x H {config.horizon} x hold {config.hold}"
    sizes = f"{sizes}, process of {thread_count} thread(s)"
    name = f"default plan, {rows} row(s) at once, {sizes}; per row"
    works = {"ours": own_plan(learner)}
    lacking = ""
    if rows > 1:
        works["without"], lacking = own_plan(learners[1]), "rows at once: one row"
    goal = Goal(LIMITS[rows], "value")
    return row(name, works, lacking, {"ours": rows}, goal=goal, tried=TRIED_LIMIT)


def beliefs_of(config: ActiveDynamicsConfig) -> BayesFilterLearner:
    """Returns beliefs after some transitions."""
    dataset = collect(config, SEED)
    result = BayesFilterLearner.init(config, dataset, np.random.SeedSequence(SEED))
    observations, following, actions, _, _, truncated = map(torch.tensor, dataset.train)
    for time in range(LEARNED):
        action, ended = actions[:, time], truncated[:, time]
        reached, after_reset = following[:, time], observations[:, time + 1]
        result.observe(Observation(action, action, reached, ended, after_reset))
    return result


def own_plan(learner: BayesFilterLearner) -> Work:
    """Plans with the surrogate and the setup that candidates share."""
    env, train = learner.config.env, learner.config.train
    generator = Generator().manual_seed(SEED)
    plan = [planner.first_plan(train.planner, len(learner.belief.mean), env.action_size)]

    def work() -> None:
        surrogate = learner.surrogate(slice(None))
        score = acquisition.scorer(surrogate, train.acquisition, train.planner.hold)
        plan[0] = planner.replan(train.planner, env.action_bound, score, plan[0], generator)

    return work


def plain_plan(learner: BayesFilterLearner) -> Work:
    """Plans candidate by candidate."""
    model = plain_model(learner, torch.float32)
    start = learner.belief.mean[0, :2].float()
    settings = reference.Settings(**SAME | {"iterations": TIMED})
    generator = Generator().manual_seed(SEED)

    def score(rollout: reference.Rollout) -> float:
        return reference.diagonal_drop(model, rollout, reference.of_projection)

    return lambda: reference.plan(model, start, score, settings, generator)


def plain_model(learner: BayesFilterLearner, dtype: torch.dtype) -> reference.Model:
    """Returns the plain planner's model of the first belief."""
    model = learner.filter
    d, rbf, emission = model.d, model.rbf, model.emission
    tensors = {
        "centres": torch.cartesian_prod(*[rbf.axis] * d),
        "weight": weights(d, learner.belief)[0],
        "observation_matrix": emission.weight,
        "covariance": torch.diag(emission.noise_variance),
        "prior": learner.belief.covariance[0, d:, d:],
    }
    converted = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    return reference.Model(length=rbf.length, dt=model.dt, **converted)


def refuse_another_value(learner: BayesFilterLearner) -> None:
    """Compares values with plain loops over the joint covariance, in double precision."""
    surrogate = learner.surrogate(slice(0, 1))
    model = plain_model(learner, torch.float64)
    shape = (1, CHECKED, learner.config.train.planner.horizon, 2)
    actions = 2 * torch.rand(shape, generator=Generator().manual_seed(SEED)) - 1
    start = surrogate.state[0].double()
    rollouts = [reference.imagined(model, start, each.double()) for each in actions[0]]
    value = acquisition.VALUES["fisher_a"](surrogate, 1)
    ours = value(acquisition.imagine(surrogate, actions, 1))[0]
    expected = [reference.full_drop(model, each, reference.of_noise) for each in rollouts]
    check_same("planner: fisher_a", list(ours), expected, rtol=TOLERANCE)
