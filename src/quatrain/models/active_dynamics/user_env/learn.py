"""dataset of a user's system -> beliefs about its field: arms act, or recorded runs go by

Transitions come in blocks, `planner.replan_every` of them: the active arm plans before a block, and
all learn from it. At `train.checkpoints` features and noise are chosen anew. The blocks of a
recording are as many as those of an environment, whatever its length.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64, UInt8
from torch import Tensor

from quatrain.envs.host.envs import EnvStates, HostEnvs, empty_states
from quatrain.envs.host.spaces import Interface
from quatrain.envs.vector_field import policies
from quatrain.envs.vector_field.policies import PolicyState, init_policy_state
from quatrain.frameworks.torch import generator_from_seed, generator_from_state, single_threaded
from quatrain.models.active_dynamics import planner
from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig as Config
from quatrain.models.active_dynamics.planner import Plan
from quatrain.models.active_dynamics.state import by_arm
from quatrain.models.active_dynamics.user_env import data, regression
from quatrain.models.active_dynamics.user_env.regression import Learner, Transitions
from quatrain.progress import Progress, TrainingDiverged

HEADLINE = ("monitor/held_out_nll", "innovation_nll")

Metrics = dict[str, np.ndarray]


class State(NamedTuple):
    """Holds all that changes while learning, of all learners: arm by arm, all seeds of each.

    seed: of the environments. environment: running episodes (`envs.EnvStates`), and replay: all
    transitions, the warm-up included; None where runs are recorded. transitions: of each learner,
    in those of `train.transitions`.
    """

    params: tuple[Learner, ...]
    seed: Int64[Tensor, ""]
    environment: tuple[Tensor, ...] | None
    policy_states: dict[str, PolicyState]
    plan: Plan
    generator: UInt8[Tensor, " state"]
    replay: Transitions | None
    transitions: Int64[Tensor, ""]


def shown_learner(config: Config) -> int:
    """Returns the place of the first seed of the arm that is judged."""
    return config.arms.index(config.shown_arm) * config.seeds


class System(NamedTuple):
    """Holds what transitions come from: environments of all learners, or recorded runs (None)."""

    config: Config
    train: Transitions
    held_out: Transitions
    dt: float
    interface: Interface
    envs: HostEnvs | None


@contextmanager
def opened(config: Config, dataset: data.Dataset, state: State) -> Iterator[System]:
    """Makes the environments, which go on with the episodes of the state, and closes them."""
    with ExitStack() as stack:
        envs = None
        if state.environment is not None:
            envs = HostEnvs(config.env, config.learners, int(state.seed))
            stack.enter_context(closing(envs))
            envs.restore(EnvStates(*(part.numpy(force=True) for part in state.environment)))
        parts = (to_tensors(dataset.train), to_tensors(dataset.held_out))
        yield System(config, *parts, float(dataset.dt), dataset.interface.restored, envs)


def to_tensors(runs: data.Runs) -> Transitions:
    device = torch.get_default_device()
    y, actions, next_y, _ = (torch.tensor(column, device=device) for column in runs)
    return Transitions(y.double(), actions.double(), next_y.double())


def recorded_until(config: Config, count: int, transitions: int) -> int:
    """Returns how many of `count` recorded ones belong to `transitions` of the training."""
    warmup = config.collect.warmup
    first = min(warmup, count // 2)
    share = (transitions - warmup) / (config.train.transitions - warmup)
    return first + round(share * (count - first))


def checkpoint_steps(config: Config) -> set[int]:
    """Returns the ends of blocks at which features are chosen anew, evenly in log."""
    last, block = config.train.transitions, config.train.planner.replan_every
    steps = np.geomspace(config.collect.warmup, last, config.train.checkpoints)
    return {int(step) // block * block for step in steps} | {last}


def init_state(config: Config, dataset: data.Dataset, seed: int) -> State:
    """Returns the state after the warm-up.

    Raises:
        DataError: nothing can be learned from it.
    """
    rng = generator_from_seed(np.random.SeedSequence(seed))
    runs, count, warmup = dataset.train, config.learners, config.collect.warmup
    if config.env.is_recorded:
        runs = runs.part(0, recorded_until(config, len(runs.ends), warmup))
    start, dt = to_tensors(runs), float(dataset.dt)
    learners = [regression.begin(config, start, dt, index) for index in range(config.seeds)]
    size = runs.actions.shape[1]
    environment = replay = None
    if not config.env.is_recorded:
        environment = tuple(map(torch.tensor, empty_states(dataset.interface.restored, count)))
        left = config.train.transitions - warmup
        padded = [torch.cat([column, column.new_zeros(left, column.shape[1])]) for column in start]
        replay = Transitions(*(column.repeat(count, 1, 1) for column in padded))
    return State(
        params=tuple(learners) * len(config.arms),
        seed=torch.tensor(seed, device="cpu"),
        environment=environment,
        policy_states={arm: init_policy_state(config.seeds, size, rng) for arm in config.arms},
        plan=planner.first_plan(config.train.planner, config.seeds, size),
        generator=rng.get_state(),
        replay=replay,
        transitions=torch.tensor(warmup, device="cpu"),
    )


def train(
    config: Config, dataset: data.Dataset, seed: int, state: State | None
) -> Iterator[Progress]:
    """Trains for `train.transitions`; yields once per `train.record_every`.

    Raises:
        DataError: the environment raised, or nothing can be learned from these data.
        TrainingDiverged: something is not finite.
    """
    if state is None:
        state = init_state(config, dataset, seed)
    with opened(config, dataset, state) as system:
        while int(state.transitions) < config.train.transitions:
            state, metrics = advance_by(system, state, config.train.record_every)
            yield Progress(int(state.transitions), state, metrics)


def update(config: Config, dataset: data.Dataset, state: State) -> tuple[State, Metrics]:
    """Returns the state after one block, and its metrics."""
    with opened(config, dataset, state) as system:
        return advance_by(system, state, config.train.planner.replan_every)


@single_threaded(if_small=True)
@torch.no_grad()
def advance_by(system: System, state: State, transitions: int) -> tuple[State, Metrics]:
    """Returns the state after some transitions, and their metrics.

    Raises:
        TrainingDiverged: something is not finite.
    """
    surprises = []
    try:
        for _ in range(transitions // system.config.train.planner.replan_every):
            state, nats = advance(system, state)
            surprises.append(nats)
        nll = torch.stack(surprises).nanmean(0)
    except torch.linalg.LinAlgError:
        nll = torch.full((system.config.learners,), torch.inf)
    unseen = (regression.surprise(each.model, system.held_out, system.dt) for each in state.params)
    held_out = torch.stack([nats.mean() for nats, _ in unseen])
    if nll.isinf().any() or not held_out.isfinite().all():
        raise TrainingDiverged(
            f"active_dynamics stopped at transition {int(state.transitions)}: "
            "innovation_nll is not finite; lower active_dynamics.network.features"
        )
    columns = {"innovation_nll": nll.nan_to_num(0), "monitor/held_out_nll": held_out}
    return state, by_arm(system.config.arms, columns)


def advance(system: System, state: State) -> tuple[State, Float64[Tensor, " learner"]]:
    """Returns the state after one block, and how surprising it was to each learner: NaN where a
    recording has no transition for it.
    """
    config, before = system.config, replay_until(system, state).y.shape[1]
    state = (
        _played(system, system.envs, state)
        if system.envs
        else state._replace(transitions=state.transitions + config.train.planner.replan_every)
    )
    is_checkpoint = int(state.transitions) in checkpoint_steps(config)
    unplanned = config.collect.warmup if system.envs else None
    learners, surprises = [], []
    for place, columns in enumerate(zip(*replay_until(system, state), strict=True)):
        batch, learner = Transitions(*columns), state.params[place]
        block = Transitions(*(column[before:] for column in columns))
        surprises.append(regression.surprise(learner.model, block, system.dt)[0].mean())
        learner = regression.observe(learner, block, system.dt)
        if is_checkpoint:
            learner = regression.refit(learner, batch, system.dt, place % config.seeds, unplanned)
        learners.append(learner)
    return state._replace(params=tuple(learners)), torch.stack(surprises)


def replay_until(system: System, state: State) -> Transitions:
    """Returns all that each learner has learned from, (learner, time, ...)."""
    config, count = system.config, int(state.transitions)
    columns = state.replay
    if columns is None:
        count = recorded_until(config, len(system.train.y), count)
        columns = Transitions(*(each.expand(config.learners, -1, -1) for each in system.train))
    return Transitions(*(column[:, :count] for column in columns))


def _played(system: System, envs: HostEnvs, state: State) -> State:
    """Plays a block in all environments, and keeps its transitions."""
    config = system.config
    rng = generator_from_state(state.generator)
    plan, policy_states = state.plan, dict(state.policy_states)
    if "active" in config.arms:
        plan = _planned(system, envs, state, rng)
    turns = []
    for age in range(config.train.planner.replan_every):
        for arm in config.arms:
            hold = config.train.policies.hold(arm)
            policy_states[arm] = policies.act(arm, 1.0, hold, policy_states[arm], rng)
        actions = {arm: policy_states[arm].action for arm in config.arms}
        if "active" in actions:
            actions["active"] = planner.decision(config.train.planner, plan, age)
        scaled = torch.cat(list(actions.values())).numpy(force=True)[:, None]
        turns.append(envs.step(data.to_actions(config.env, system.interface, scaled)))
    assert state.replay is not None
    replay = Transitions(*(column.clone() for column in state.replay))
    for column, block in zip(replay, data.columns_of(turns), strict=True):
        column[:, state.transitions : state.transitions + len(turns)] = torch.tensor(block)
    return state._replace(
        environment=tuple(map(torch.tensor, envs.states)),
        policy_states=policy_states,
        plan=plan,
        generator=rng.get_state(),
        replay=replay,
        transitions=state.transitions + len(turns),
    )


def _planned(system: System, envs: HostEnvs, state: State, rng: torch.Generator) -> Plan:
    config = system.config
    first = config.arms.index("active") * config.seeds
    models = [learner.model for learner in state.params[first : first + config.seeds]]
    shown = torch.tensor(envs.obs[first : first + config.seeds, 0]).double()
    hold = config.train.planner.hold

    def score(actions: Any) -> Any:
        gains = [
            regression.information(model, y, each[None], system.dt, hold)
            for model, y, each in zip(models, shown, actions, strict=True)
        ]
        return torch.cat(gains)

    return planner.replan(config.train.planner, 1.0, score, state.plan, rng)
