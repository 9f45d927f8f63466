"""dataset of a user's system -> beliefs about its field: arms act, or recorded runs go by

Transitions come in blocks, `planner.replan_every` of them: the active arm plans before a block, and
all learn from it. At `train.checkpoints` features and noise are chosen anew. The blocks of a
recording are as many as those of an environment, whatever its length.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from quatrain.envs.host.envs import EnvStates, HostEnvs, empty_states
from quatrain.envs.vector_field import policies
from quatrain.envs.vector_field.policies import PolicyState, init_policy_state
from quatrain.frameworks.torch import generator_from_seed, generator_from_state, single_threaded
from quatrain.models.active_dynamics import planner
from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig
from quatrain.models.active_dynamics.planner import Plan
from quatrain.models.active_dynamics.user_env import regression
from quatrain.models.active_dynamics.user_env.data import Dataset, Runs, checked, to_actions
from quatrain.models.active_dynamics.user_env.regression import Learner, Transitions
from quatrain.progress import Progress, TrainingDiverged, by_seed

HEADLINE = ("monitor/held_out_nll", "innovation_nll")
Metrics = dict[str, np.ndarray]


class State(NamedTuple):
    """Holds all that changes while learning, of all learners: arm by arm, all seeds of each.

    environment: running episodes (`envs.EnvStates`), and replay: their transitions; None where runs
    are recorded. transitions: of each learner, in those of `train.transitions`.
    """

    params: tuple[Learner, ...]
    environment: tuple[Tensor, ...] | None
    policy_states: dict[str, PolicyState]
    plan: Plan
    generator: UInt8[Tensor, " state"]
    replay: Transitions | None
    truncations: Int64[Tensor, " learner"]
    transitions: Int64[Tensor, ""]


class Training:
    """Holds learners with their environments; `advance` changes it in place, not the given
    state.
    """

    def __init__(
        self, config: ActiveDynamicsUserEnvConfig, dataset: Dataset, seed: int, state: State
    ) -> None:
        self.config = config
        self.dataset = dataset
        self.state = state
        self.dt = float(dataset.dt)
        self.interface = checked(config.env, dataset.interface.restored)
        self.train, self.held_out = to_tensors(dataset.train), to_tensors(dataset.held_out)
        self.checkpoints = checkpoint_steps(config)
        self.envs: HostEnvs | None = None
        if state.environment is not None:
            self.envs = HostEnvs(config.env, config.learners, seed)
            with ExitStack() as closing_if_refused:
                closing_if_refused.callback(self.envs.close)
                self.envs.restore(
                    EnvStates(*(part.numpy(force=True) for part in state.environment))
                )
                closing_if_refused.pop_all()

    def close(self) -> None:
        if self.envs is not None:
            self.envs.close()

    @property
    def recorded_count(self) -> int:
        """Returns the recorded transitions that were learned from."""
        return recorded_until(self.config, self.dataset, int(self.state.transitions))


def to_tensors(runs: Runs) -> Transitions:
    device = torch.get_default_device()
    y, actions, next_y, _ = (torch.tensor(column, device=device) for column in runs)
    return Transitions(y.double(), actions.double(), next_y.double())


def recorded_until(config: ActiveDynamicsUserEnvConfig, dataset: Dataset, transitions: int) -> int:
    """Returns how many of the dataset's transitions belong to `transitions` of the training."""
    count, warmup = len(dataset.train.ends), config.collect.warmup
    first = min(warmup, count // 2)
    share = (transitions - warmup) / (config.train.transitions - warmup)
    return first + round(share * (count - first)) if config.env.is_recorded else warmup


def checkpoint_steps(config: ActiveDynamicsUserEnvConfig) -> set[int]:
    """Returns the ends of blocks at which features are chosen anew, evenly in log."""
    last, block = config.train.transitions, config.train.planner.replan_every
    steps = np.geomspace(config.collect.warmup, last, config.train.checkpoints)
    return {int(step) // block * block for step in steps} | {last}


def init_state(config: ActiveDynamicsUserEnvConfig, dataset: Dataset, seed: int) -> State:
    """Returns the state after the warm-up.

    Raises:
        DataError: nothing can be learned from it.
    """
    rng = generator_from_seed(np.random.SeedSequence(seed))
    start = to_tensors(
        dataset.train.part(0, recorded_until(config, dataset, config.collect.warmup))
    )
    seeds = range(config.seeds)
    learners = [regression.begin(config, start, float(dataset.dt), index) for index in seeds]
    interface = checked(config.env, dataset.interface.restored)
    size, count = len(interface.action_low), config.learners
    environment = replay = None
    if not config.env.is_recorded:
        environment = tuple(map(torch.tensor, empty_states(interface, count)))
        shape = (count, config.train.transitions - config.collect.warmup)
        zeros = [torch.zeros(*shape, column.shape[1], dtype=torch.float64) for column in start]
        replay = Transitions(*zeros)
    return State(
        params=tuple(learners) * len(config.arms),
        environment=environment,
        policy_states={arm: init_policy_state(config.seeds, size, rng) for arm in config.arms},
        plan=planner.first_plan(config.train.planner, config.seeds, size),
        generator=rng.get_state(),
        replay=replay,
        truncations=torch.zeros(count, dtype=torch.int64),
        transitions=torch.tensor(config.collect.warmup, device="cpu"),
    )


def train(
    config: ActiveDynamicsUserEnvConfig, dataset: Dataset, seed: int, state: State | None
) -> Iterator[Progress]:
    """Trains for `train.transitions`; yields once per `train.record_every`.

    Raises:
        DataError: the environment raised, or nothing can be learned from these data.
        TrainingDiverged: something is not finite.
    """
    if state is None:
        state = init_state(config, dataset, seed)
    with closing(Training(config, dataset, seed, state)) as training:
        while int(training.state.transitions) < config.train.transitions:
            metrics = advance_by(training, config.train.record_every)
            yield Progress(int(training.state.transitions), training.state, metrics)


def update(
    config: ActiveDynamicsUserEnvConfig, dataset: Dataset, state: State
) -> tuple[State, Metrics]:
    """Returns the state after one block, and its metrics."""
    with closing(Training(config, dataset, 0, state)) as training:
        metrics = advance_by(training, config.train.planner.replan_every)
        return training.state, metrics


@single_threaded(if_small=True)
@torch.no_grad()
def advance_by(training: Training, transitions: int) -> Metrics:
    """Changes `training` in place by some transitions, and returns their metrics.

    Raises:
        TrainingDiverged: something is not finite.
    """
    before = training.state.truncations
    blocks = transitions // training.config.train.planner.replan_every
    try:
        nll = torch.stack([advance(training) for _ in range(blocks)]).nanmean(0)
    except torch.linalg.LinAlgError:
        nll = torch.full((training.config.learners,), torch.nan)
    held_out = torch.stack(
        [
            regression.surprise(learner.model, training.held_out, training.dt).nll.mean()
            for learner in training.state.params
        ]
    )
    if not (held_out.isfinite().all() and not nll.isinf().any()):
        raise TrainingDiverged(
            f"active_dynamics stopped at transition {int(training.state.transitions)}: "
            "innovation_nll is not finite; lower active_dynamics.network.features"
        )
    columns = {
        "innovation_nll": nll.nan_to_num(0),
        "monitor/held_out_nll": held_out,
        "truncations": (training.state.truncations - before).double(),
    }
    return by_seed(_by_arm(training.config, columns))


def _by_arm(config: ActiveDynamicsUserEnvConfig, columns: dict[str, Tensor]) -> Metrics:
    """Returns `NAME.ARM` of each arm, and `NAME` of all."""
    named = {}
    for name, value in columns.items():
        by_arm = value.numpy(force=True).reshape(len(config.arms), -1)
        named[name] = by_arm.mean(0)[None]
        for arm, seeds in zip(config.arms, by_arm, strict=True):
            named[f"{name}.{arm}"] = seeds[None]
    return named


def advance(training: Training) -> Float32[Tensor, " learner"] | Tensor:
    """Changes `training` in place by one block; returns how surprising it was to each learner.

    It is NaN where a recording has no transition for the block.
    """
    config = training.config
    blocks = _next_recorded(training) if training.envs is None else _played(training)
    learners, surprises = [], []
    for place, (learner, block) in enumerate(zip(training.state.params, blocks, strict=True)):
        surprises.append(regression.surprise(learner.model, block, training.dt).nll.mean())
        learner = regression.observe(learner, block, training.dt)
        if int(training.state.transitions) in training.checkpoints:
            batch = transitions_of(training, place)
            unplanned = None if training.envs is None else config.collect.warmup
            learner = regression.refit(learner, batch, training.dt, place % config.seeds, unplanned)
        learners.append(learner)
    training.state = training.state._replace(params=tuple(learners))
    return torch.stack(surprises)


def transitions_of(training: Training, learner: int) -> Transitions:
    """Returns all that a learner has learned from."""
    parts = [Transitions(*(column[: training.recorded_count] for column in training.train))]
    if training.state.replay is not None:
        count = int(training.state.transitions) - training.config.collect.warmup
        parts.append(Transitions(*(each[learner, :count] for each in training.state.replay)))
    return Transitions(*map(torch.cat, zip(*parts, strict=True)))


def _next_recorded(training: Training) -> list[Transitions]:
    first = training.recorded_count
    block = training.config.train.planner.replan_every
    training.state = training.state._replace(transitions=training.state.transitions + block)
    rows = Transitions(*(column[first : training.recorded_count] for column in training.train))
    return [rows] * training.config.learners


def _played(training: Training) -> list[Transitions]:
    """Plays a block in all environments, and keeps its transitions."""
    assert training.envs is not None
    config, state = training.config, training.state
    rng = generator_from_state(state.generator)
    plan, policy_states = state.plan, dict(state.policy_states)
    if "active" in config.arms:
        plan = _planned(training, plan, rng)
    turns = []
    for age in range(config.train.planner.replan_every):
        arm_actions = []
        for arm in config.arms:
            hold = config.train.policies.hold(arm)
            policy_states[arm] = policies.act(arm, 1.0, hold, policy_states[arm], rng)
            is_planned = arm == "active"
            action = policy_states[arm].action
            arm_actions.append(
                planner.decision(config.train.planner, plan, age) if is_planned else action
            )
        scaled = torch.cat(arm_actions).numpy(force=True)[:, None]
        turns.append(training.envs.step(to_actions(training.interface, scaled)))
    columns = [
        torch.tensor(np.stack([getattr(turn, name)[:, 0] for turn in turns], 1))
        for name in ("obs", "actions", "next_obs")
    ]
    ended = sum(torch.tensor(turn.terminated | turn.truncated).long() for turn in turns)
    blocks = Transitions(*(column.to(rng.device).double() for column in columns))
    training.state = state._replace(
        environment=tuple(map(torch.tensor, training.envs.states)),
        policy_states=policy_states,
        plan=plan,
        generator=rng.get_state(),
        replay=_written(config, state, blocks),
        truncations=state.truncations + ended,
        transitions=state.transitions + len(turns),
    )
    return [Transitions(*columns) for columns in zip(*blocks, strict=True)]


def _written(config: ActiveDynamicsUserEnvConfig, state: State, blocks: Transitions) -> Transitions:
    """Returns the replay with one block more; the given state keeps its own."""
    assert state.replay is not None
    first = int(state.transitions) - config.collect.warmup
    replay = Transitions(*(column.clone() for column in state.replay))
    for column, block in zip(replay, blocks, strict=True):
        column[:, first : first + block.shape[1]] = block
    return replay


def _planned(training: Training, plan: Plan, rng: torch.Generator) -> Plan:
    assert training.envs is not None
    config = training.config
    first = config.arms.index("active") * config.seeds
    models = [learner.model for learner in training.state.params[first : first + config.seeds]]
    shown = torch.tensor(training.envs.obs[first : first + config.seeds, 0]).double()

    def score(actions: Any) -> Any:
        gains = [
            regression.information(
                model, y, actions[place][None], training.dt, config.train.planner.hold
            )
            for place, (model, y) in enumerate(zip(models, shown, strict=True))
        ]
        return torch.cat(gains)

    return planner.replan(config.train.planner, 1.0, score, plan, rng)
