"""config -> the project's worlds and beliefs, and the plain ones alike; refused where they differ."""

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
"""To be judged with, which these comparisons are not."""


class Sides(NamedTuple):
    """A world, and what its rows begin with."""

    config: ActiveDynamicsConfig
    dataset: Dataset
    world: World


class Met(NamedTuple):
    """A transition of all rows, with the random numbers that made it."""

    before: Tensor
    action: Tensor
    draws: Draws
    seen: Observation
    state: EnvState


def config_of(root: Path, **sections: Any) -> ActiveDynamicsConfig:
    """params.yaml with sections of active_dynamics changed."""
    raw = overlaid(read_raw(root, None), {"active_dynamics": sections})
    return validate(raw, lambda name: read_input(root, str(name))).active_dynamics


def sides_of(root: Path, rows: int, **sections: Any) -> Sides:
    """Of so many rows."""
    held = overlaid({"seeds": rows, "collect": LITTLE, "train": {"arms": ["random"]}}, sections)
    config = config_of(root, **held)
    dataset = collect(config, SEED)
    return Sides(config, dataset, world_of(config, dataset))


class Walk:
    """Rows that act at random."""

    def __init__(self, world: World, rows: int) -> None:
        self.world, self.rows = world, rows
        self.generator = Generator().manual_seed(SEED)
        self.state = reset(world, self._drawn(), [self.generator]).state

    def _drawn(self) -> Draws:
        return draw(self.world, self.rows, [self.generator])

    def met(self) -> Met:
        """The next transition."""
        bound, size = self.world.spec.action_bound, self.world.spec.action_size
        action = bound * (2 * torch.rand(self.rows, size, generator=self.generator) - 1)
        before, draws = self.state.x, self._drawn()
        made = step(self.world, self.state, action, draws, [self.generator])
        self.state = made.state
        seen = Observation(
            action,
            action @ self.world.control.T,
            made.final_observation,
            made.truncated,
            made.observation,
        )
        return Met(before, action, draws, seen, made.state)


def beliefs_of(sides: Sides, transitions: int) -> BayesFilterLearner:
    """After so many random transitions."""
    found = BayesFilterLearner.init(sides.config, sides.dataset, np.random.SeedSequence(SEED))
    walk = Walk(sides.world, sides.config.learners)
    for _ in range(transitions):
        found.observe(walk.met().seen)
    return found


# The plain ones.


def plain_world_of(world: World) -> plain_world.World:
    """With the original's formula of a limit cycle, or a table that is read anew in each call."""
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
    """The project's nodes [1, component, x2, x1], in the order of a plain table."""
    vectors = nodes[0].permute(2, 1, 0).double().numpy()
    axes = [
        torch.linspace(-plain_world.SPAN, plain_world.SPAN, count).double().numpy()
        for count in vectors.shape[:2]
    ]
    return plain_world.Table((axes[0], axes[1]), vectors)


def plain_filter_of(rows: BayesFilterLearner) -> plain_filter.Model:
    """In double precision, as the project's is."""
    given = rows.filter
    axis, emission = given.rbf.axis, given.emission
    return plain_filter.Model(
        centres=torch.cartesian_prod(*[axis] * given.d).reshape(-1, given.d),
        length=given.rbf.length,
        dt=given.dt,
        process_noise=given.process_noise,
        seen=emission.weight,
        bias=emission.bias,
        noise_variance=emission.noise_variance,
    )


def plain_beliefs(rows: BayesFilterLearner) -> list[plain_filter.Belief]:
    """One by one."""
    return [
        plain_filter.Belief(*(part.clone() for part in each))
        for each in zip(*rows.belief, strict=True)
    ]


def plain_planner_of(rows: BayesFilterLearner, row: int = 0) -> plain_planner.Model:
    """What a plain planner sees of one belief, in single precision."""
    model, given = plain_filter_of(rows), rows.filter
    return plain_planner.Model(
        centres=model.centres.float(),
        weight=weights(given.d, rows.belief)[row].float(),
        length=model.length,
        dt=model.dt,
        seen=model.seen.float(),
        covariance=torch.diag(model.noise_variance).float(),
        prior=rows.belief.covariance[row, given.d :, given.d :].float(),
    )


def refuse_another_belief(rows: BayesFilterLearner, walk: Walk) -> None:
    """Means, covariances and the innovation's likelihood must be the same after a transition; `rows` believes it then.

    Raises:
        NotTheSame: they are not.
    """
    model, beliefs, met = plain_filter_of(rows), plain_beliefs(rows), walk.met()
    nll = rows.observe(met.seen)
    expected = plain_filter.step(
        model, beliefs, met.seen.control.double(), met.seen.observation.double()
    )
    for row, each in enumerate(expected):
        same = close(rows.belief.mean[row], each.belief.mean) and close(
            rows.belief.covariance[row], each.belief.covariance
        )
        if not same or not close(nll[row] * len(model.bias), torch.tensor(each.innovation_nll)):
            raise NotTheSame(f"filter: row {row} believes something else than the dense filter")


def refuse_another_step(world: World, rows: int) -> None:
    """States, observations and truncations must be the same.

    Raises:
        NotTheSame: they are not.
    """
    met, plain = Walk(world, rows).met(), plain_world_of(world)
    found = plain_world.step(
        plain, met.before.tolist(), met.action.tolist(), plain_noise(met.draws)
    )
    for row, each in enumerate(found):
        same = close(met.state.x[row], torch.tensor(each.state)) and each.truncated == bool(
            met.seen.truncated[row]
        )
        if not same or not close(met.seen.reset_observation[row], torch.tensor(each.observation)):
            raise NotTheSame(f"environment: row {row} goes elsewhere than point by point")


def plain_noise(draws: Draws) -> list[plain_world.Noise]:
    return [
        plain_world.Noise(*each) for each in zip(*(part.tolist() for part in draws), strict=True)
    ]


def close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-5)
