"""config -> worlds and beliefs of the project and the equal plain ones; refused if they differ"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from benchmarks.reference import active_dynamics_filter as plain_filter
from benchmarks.reference import active_dynamics_planner as plain_planner
from benchmarks.reference import active_dynamics_world as plain_world
from benchmarks.table import NotTheSame
from pipeline.storage.params_file import overlaid, read_input, read_raw, validate
from quatrain.envs.vector_field.world import Draws, EnvState, World, draw, reset, step
from quatrain.models.active_dynamics.bayes_filter.filter import weights
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.collect import Dataset, collect, world_of
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import Observation

SEED = 0
LITTLE = {"held_out_rollouts": 8, "starts": 8}
"""Small sizes of the held-out data, which these comparisons do not use."""


class Sides(NamedTuple):
    """Holds a world with its config and dataset."""

    config: ActiveDynamicsConfig
    dataset: Dataset
    world: World


class Transition(NamedTuple):
    """Holds a transition of all rows, with the random numbers it used."""

    before: Tensor
    action: Tensor
    draws: Draws
    observed: Observation
    state: EnvState


def config_of(root: Path, **sections: Any) -> ActiveDynamicsConfig:
    """Returns params.yaml with sections of active_dynamics changed."""
    raw = overlaid(read_raw(root, None), {"active_dynamics": sections})
    return validate(raw, lambda name: read_input(root, str(name))).active_dynamics


def sides_of(root: Path, rows: int, **sections: Any) -> Sides:
    """Returns a world with this number of rows."""
    overrides = overlaid(
        {"seeds": rows, "collect": LITTLE, "train": {"arms": ["random"]}}, sections
    )
    config = config_of(root, **overrides)
    dataset = collect(config, SEED)
    return Sides(config, dataset, world_of(config, dataset))


class Walk:
    """Steps rows with random actions."""

    def __init__(self, world: World, rows: int) -> None:
        self.world, self.rows = world, rows
        self.generator = Generator().manual_seed(SEED)
        self.state = reset(world, self._drawn(), [self.generator]).state

    def _drawn(self) -> Draws:
        return draw(self.world, self.rows, [self.generator])

    def step(self) -> Transition:
        """Takes the next transition."""
        bound, size = self.world.spec.action_bound, self.world.spec.action_size
        action = bound * (2 * torch.rand(self.rows, size, generator=self.generator) - 1)
        before, draws = self.state.x, self._drawn()
        outcome = step(self.world, self.state, action, draws, [self.generator])
        self.state = outcome.state
        observed = Observation(
            action,
            action @ self.world.control.T,
            outcome.final_observation,
            outcome.truncated,
            outcome.observation,
        )
        return Transition(before, action, draws, observed, outcome.state)


def beliefs_of(sides: Sides, transitions: int) -> BayesFilterLearner:
    """Returns the beliefs after random transitions."""
    result = BayesFilterLearner.init(sides.config, sides.dataset, np.random.SeedSequence(SEED))
    walk = Walk(sides.world, sides.config.learners)
    for _ in range(transitions):
        result.observe(walk.step().observed)
    return result


# The plain ones.


def plain_world_of(world: World) -> plain_world.World:
    """Returns the plain world: the original's limit cycle, or a table interpolated per call."""
    spec, emission, alpha = world.spec, world.emission, float(world.field.alpha)
    raw: plain_world.Field = plain_world.limit_cycle
    if world.field.table.numel():
        raw = plain_table(world.field.table)
    elif spec.field.kind != "limit_cycle":
        raise ValueError(f"the plain world has no formula for {spec.field.kind}")
    return plain_world.World(
        field=lambda x: [alpha * value for value in raw(x)],
        dt=spec.dt,
        process_noise=spec.process_noise,
        action_bound=spec.action_bound,
        escape_radius=spec.escape_radius,
        weight=emission.weight.tolist(),
        bias=emission.bias.tolist(),
        noise_sd=float(emission.noise_variance[0].sqrt()),
    )


def plain_table(nodes: Tensor) -> plain_world.Table:
    """Reorders the project's nodes [1, component, x2, x1] for a plain table."""
    vectors = nodes[0].permute(2, 1, 0).double().numpy()
    axes = [
        torch.linspace(-plain_world.SPAN, plain_world.SPAN, count).double().numpy()
        for count in vectors.shape[:2]
    ]
    return plain_world.Table((axes[0], axes[1]), vectors)


def plain_filter_of(rows: BayesFilterLearner) -> plain_filter.Model:
    """Returns the plain filter in double precision, like the project's."""
    model_filter = rows.filter
    axis, emission = model_filter.rbf.axis, model_filter.emission
    return plain_filter.Model(
        centres=torch.cartesian_prod(*[axis] * model_filter.d).reshape(-1, model_filter.d),
        length=model_filter.rbf.length,
        dt=model_filter.dt,
        process_noise=model_filter.process_noise,
        observation_matrix=emission.weight,
        bias=emission.bias,
        noise_variance=emission.noise_variance,
    )


def plain_beliefs(rows: BayesFilterLearner) -> list[plain_filter.Belief]:
    """Returns the beliefs one by one."""
    return [
        plain_filter.Belief(*(part.clone() for part in each))
        for each in zip(*rows.belief, strict=True)
    ]


def plain_planner_of(rows: BayesFilterLearner, row: int = 0) -> plain_planner.Model:
    """Returns the plain planner's model of one belief, in single precision."""
    model, model_filter = plain_filter_of(rows), rows.filter
    return plain_planner.Model(
        centres=model.centres.float(),
        weight=weights(model_filter.d, rows.belief)[row].float(),
        length=model.length,
        dt=model.dt,
        observation_matrix=model.observation_matrix.float(),
        covariance=torch.diag(model.noise_variance).float(),
        prior=rows.belief.covariance[row, model_filter.d :, model_filter.d :].float(),
    )


def refuse_another_belief(rows: BayesFilterLearner, walk: Walk) -> None:
    """Compares means, covariances and likelihoods after a transition, which updates `rows`.

    Raises:
        NotTheSame: they are not.
    """
    model, beliefs, transition = plain_filter_of(rows), plain_beliefs(rows), walk.step()
    nll = rows.observe(transition.observed)
    expected = plain_filter.step(
        model,
        beliefs,
        transition.observed.control.double(),
        transition.observed.observation.double(),
    )
    for row, each in enumerate(expected):
        same = close(rows.belief.mean[row], each.belief.mean) and close(
            rows.belief.covariance[row], each.belief.covariance
        )
        if not same or not close(nll[row] * len(model.bias), torch.tensor(each.innovation_nll)):
            raise NotTheSame(f"filter: row {row} believes something else than the dense filter")


def refuse_another_step(world: World, rows: int) -> None:
    """Compares states, observations and truncations.

    Raises:
        NotTheSame: they are not.
    """
    transition, plain = Walk(world, rows).step(), plain_world_of(world)
    result = plain_world.step(
        plain, transition.before.tolist(), transition.action.tolist(), plain_noise(transition.draws)
    )
    for row, each in enumerate(result):
        same = close(transition.state.x[row], torch.tensor(each.state)) and each.truncated == bool(
            transition.observed.truncated[row]
        )
        if not same or not close(
            transition.observed.reset_observation[row], torch.tensor(each.observation)
        ):
            raise NotTheSame(f"environment: row {row} goes elsewhere than point by point")


def plain_noise(draws: Draws) -> list[plain_world.Noise]:
    return [
        plain_world.Noise(*each) for each in zip(*(part.tolist() for part in draws), strict=True)
    ]


def close(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left.double(), right.double(), rtol=1e-3, atol=1e-5)
