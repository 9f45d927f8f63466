"""colonies of cells as PPO's environments: what is seen of them, steps, validation"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor
from torch.nn import functional

from quatrain.envs.colony import features
from quatrain.envs.colony.config import GRAPH_FEATURES, NODE_FEATURES, PARAMETERS, REASONS, SUCCESS
from quatrain.envs.colony.dynamics import Colonies, World, make_world
from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.policies import ColonyPolicy
from quatrain.envs.colony.world import StepResult, episodes, select, start, step
from quatrain.errors import TrainingDiverged, warn
from quatrain.frameworks.torch import generator_from_seed, generator_from_state
from quatrain.models.actor_critic.colony_data import Dataset as Dataset
from quatrain.models.actor_critic.colony_data import check as check
from quatrain.models.actor_critic.colony_data import collect as collect
from quatrain.models.actor_critic.colony_data import make_colonies
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.replay.rollouts import Graphs, Rollout, Spec, Stepped, round_up_width

HEADLINE = ("return", "success")
VALIDATED = ("validation_return", "validation_success")
CLIP = 10.0  # standard deviations at which observations are clipped
# Places in the statistics of an episode; the shares of reasons follow, then the sums of components.
RETURN, LENGTH = range(2)


class Scale(NamedTuple):
    node_mean: Float[Tensor, " node"]
    node_std: Float[Tensor, " node"]
    graph_mean: Float[Tensor, " graph"]
    graph_std: Float[Tensor, " graph"]


class ColonyState(NamedTuple):
    """Holds what changes beside the network: colonies, running episodes, states of generators.

    components: sums over the running episodes. episode_means: means over the episodes that ended in
    the last rollout in which any ended: return, length, share of each reason, sum of each
    component.
    """

    colonies: Colonies
    components: Float[Tensor, "colony component"]
    episode_means: Float[Tensor, " statistic"]
    environment: UInt8[Tensor, " state"]
    policy: UInt8[Tensor, " state"]
    order: UInt8[Tensor, " state"]


def spec_of(config: ActorCriticConfig, dataset: Dataset | None = None) -> Spec:
    env = config.env
    bounds = [getattr(env.action.bounds, name) for name in env.action.active_params]
    low, high = zip(*bounds, strict=True)
    return Spec(
        cells=env.max_nodes if sees_cells(config) else 0,
        node_features=NODE_FEATURES[env.features],
        graph_features=GRAPH_FEATURES[env.features],
        action_low=low,
        action_high=high,
        action_counts=(),
        components=len(env.reward.weighted),
    )


def sees_cells(config: ActorCriticConfig) -> bool:
    return config.network.encoder == "attention"


# What is seen, and done.


class View(NamedTuple):
    """Holds plates with the scale of what is seen on them, and values of numbers of an action that
    no policy draws.
    """

    config: ActorCriticConfig
    world: World
    scale: Scale
    columns: Int64[Tensor, " active"]
    constants: Float[Tensor, "5"]

    def observe(self, colonies: Colonies) -> Graphs:
        """Returns the network's input, as wide as the largest colony needs; slots without a cell
        hold zeros.
        """
        world, scale = self.world, self.scale
        width = world.rules.max_nodes
        if colonies.n.is_cpu:  # on a GPU reading the sizes would be a synchronisation
            cells = min(int(colonies.n.max()), width)
            width = round_up_width(cells, width, self.config.train.compile)
        graph_only = not sees_cells(self.config)
        node, graph, parent, mask = features.compress_stiffness(
            world.rules, features.observe(world, colonies, width, graph_only=graph_only)
        )
        if not graph_only:
            node = ((node - scale.node_mean) / scale.node_std).clamp_(-CLIP, CLIP)
            node = node * mask[..., None]
        graph = ((graph - scale.graph_mean) / scale.graph_std).clamp_(-CLIP, CLIP)
        return Graphs(node, graph, parent, mask)

    def whole_action(self, drawn: Float[Tensor, "env active"]) -> Float[Tensor, "env 5"]:
        return self.constants.expand(len(drawn), -1).index_copy(-1, self.columns, drawn)

    def playing(self, act: Callable[[Graphs], Tensor]) -> ColonyPolicy:
        """Returns a policy of colonies."""
        return lambda _, colonies: self.whole_action(act(self.observe(colonies)))


def view_of(config: ActorCriticConfig, plates: Plates, scale: Scale) -> View:
    return view_in(config, make_world(config.env, plates), scale)


def view_in(config: ActorCriticConfig, world: World, scale: Scale) -> View:
    action = config.env.action
    return View(
        config=config,
        world=world,
        scale=scale,
        columns=torch.tensor([PARAMETERS.index(name) for name in action.active_params]),
        constants=torch.tensor([action.fixed_params.get(name, 0.0) for name in PARAMETERS]),
    )


def begin_scale(config: ActorCriticConfig, dataset: Dataset, network: Any) -> Scale:
    """Returns the dataset's scale, or 0 and 1 where `env.obs_norm` is none."""
    scale = Scale(*map(torch.tensor, dataset.train.norm))
    if config.env.obs_norm == "dataset":
        return scale
    means = map(torch.zeros_like, (scale.node_mean, scale.graph_mean))
    return Scale(*(part for mean in means for part in (mean, mean + 1)))


# Running colonies.


def split(sequence: np.random.SeedSequence) -> tuple[np.random.SeedSequence, ...]:
    """Returns the random sequences of weights, environments, policy and order of minibatches."""
    weights, drawn = sequence.spawn(2)
    return weights, *drawn.spawn(3)


def first_state(
    config: ActorCriticConfig,
    dataset: Dataset,
    sequence: np.random.SeedSequence,
    **generators: UInt8[Tensor, " state"],
) -> ColonyState:
    """Returns colonies before their first step; generators: states of the learner's."""
    world = make_world(config.env, dataset.train.plates)
    environment = generator_from_seed(sequence)
    count = config.train.num_envs
    components = len(world.rules.reward_weights)
    return ColonyState(
        colonies=start(world, count, environment),
        components=torch.zeros(count, components),
        episode_means=torch.zeros(2 + len(REASONS) + components),
        environment=environment.get_state(),
        **generators,
    )


def make_envs(
    config: ActorCriticConfig, dataset: Dataset, scale: Scale, state: ColonyState
) -> "ColonyEnvs":
    return ColonyEnvs(view_of(config, dataset.train.plates, scale), state)


class ColonyEnvs:
    """Steps colonies, and sums over their episodes (`replay.rollouts.Envs`).

    Colonies are never changed in place, so they are not copied.
    """

    def __init__(self, view: View, state: ColonyState) -> None:
        self.view = view
        self.weights = view.world.weights
        self.colonies = state.colonies
        self._components = state.components
        self._episode_means = state.episode_means
        self._environment = generator_from_state(state.environment)
        self._begin_rollout()

    def _begin_rollout(self) -> None:
        self._ended = torch.zeros(1 + len(self._episode_means))
        self._cells = torch.zeros(())

    def observe(self) -> Graphs:
        return self.view.observe(self.colonies)

    def step(self, action: Float[Tensor, "colony active"]) -> Stepped:
        action = self.view.whole_action(action)
        stepped = step(self.view.world, self.colonies, action, self._environment)
        components = self._components + stepped.components
        over = stepped.terminated | stepped.truncated
        self._ended += self._sum_over_ended(stepped, components)
        self._components = torch.where(over[:, None], 0.0, components)
        self._cells += self.colonies.n.float().mean()
        self.colonies = stepped.colonies
        return Stepped(stepped.components, stepped.terminated, stepped.truncated, stepped.final)

    def _sum_over_ended(
        self, stepped: StepResult, components: Float[Tensor, "colony component"]
    ) -> Float[Tensor, " one_plus_statistic"]:
        over = (stepped.terminated | stepped.truncated).float()
        columns = [
            torch.ones_like(over)[:, None],
            (components @ self.weights)[:, None],
            stepped.final.t[:, None],
            functional.one_hot(stepped.reason, len(REASONS)),
            components,
        ]
        return over @ torch.cat([column.float() for column in columns], 1)

    def observe_final(self, finals: Sequence[Colonies], truncated: Tensor) -> Graphs | None:
        selected = [
            select(colonies, mask.nonzero()[:, 0].to(colonies.n.device))
            for colonies, mask in zip(finals, truncated.cpu(), strict=True)
        ]
        colonies = Colonies(*map(torch.cat, zip(*selected, strict=True)))
        return self.view.observe(colonies) if len(colonies.n) else None

    def end_rollout(
        self, rollout: Rollout, action: Float[Tensor, "transition active"], iteration: int
    ) -> dict[str, Any]:
        """Checks rewards, and returns metrics; of episodes, those of the last rollout in which any
        ended.
        """
        check_rewards(self.view.config, rollout.components, iteration)
        episodes = self._ended[0]
        means = self._ended[1:] / episodes.clamp(min=1)
        self._episode_means = torch.where(episodes > 0, means, self._episode_means)
        whole = self.view.whole_action(action)
        episode = self._episode_means
        metrics = {
            "return": episode[RETURN],
            "length": episode[LENGTH],
            "episodes": episodes,
            "nodes_mean": self._cells / len(rollout.n),
            "success": episode[2 + SUCCESS],
        }
        names = [name for name, _ in self.view.config.env.reward.weighted]
        for prefix, keys, values in (
            ("reason", REASONS[1:], episode[3 : 2 + len(REASONS)]),
            ("reward", names, episode[2 + len(REASONS) :]),
            ("action_mean", PARAMETERS, whole.mean(0)),
            ("action_std", PARAMETERS, whole.std(0, correction=0)),
        ):
            metrics |= {f"{prefix}/{key}": value for key, value in zip(keys, values, strict=True)}
        self._begin_rollout()
        return metrics

    def save(self, policy: Tensor, order: Tensor) -> ColonyState:
        environment = self._environment.get_state()
        running = self.colonies, self._components, self._episode_means
        return ColonyState(*running, environment, policy, order)

    def close(self) -> None:
        pass


def check_rewards(
    config: ActorCriticConfig, components: Float[Tensor, "time colony component"], iteration: int
) -> None:
    """Checks that all rewards of a rollout are finite.

    Raises:
        TrainingDiverged: names the component and the colony.
    """
    if components.isfinite().all():
        return
    time, colony, component = (~components.isfinite()).nonzero()[0].tolist()
    name, _ = config.env.reward.weighted[component]
    raise TrainingDiverged(
        f"actor_critic: reward component {name} of colony {colony} is "
        f"{components[time, colony, component]} at iteration {iteration}; "
        "lower its weight or actor_critic.env.action.bounds"
    )


# Validation.


@torch.no_grad()
def validate(learner: Any, dataset: Dataset) -> tuple[float, float]:
    """Returns the mean return, undiscounted, and the share of successes of one episode of each
    validation colony, of the deterministic policy.
    """
    view = learner.envs.view
    initial = dataset.train.validation
    colonies = make_colonies(view.world.rules, initial)
    total = torch.zeros((), dtype=torch.float64)
    successes = torch.zeros((), dtype=torch.int64)
    for moment in episodes(view.world, colonies, view.playing(learner.actor.act)):
        total += moment.reward.double().sum()
        successes += (moment.transition.reason == SUCCESS).sum()
    return float(total) / len(initial.n), int(successes) / len(initial.n)


def warn_if_failing(learners: Sequence[Any], scores: Float[np.ndarray, "learner 2"]) -> None:
    """Warns once, in the first evaluation of the second half of the training, of learners that have
    no success in this evaluation nor with their best weights.
    """
    config = learners[0].config
    train = config.train
    done = learners[0].iterations
    before = (done - 1) // train.evaluate_every * train.evaluate_every
    if before < train.steps / 2 <= done:
        best_successes = [
            max(success, float(learner.best.validation_success))
            for learner, success in zip(learners, scores[:, 1], strict=True)
        ]
        warn_without_success(config, "validation", done * train.batch, best_successes)


def warn_without_success(
    config: ActorCriticConfig, colonies: str, transitions: int, successes: Sequence[float]
) -> None:
    """Warns of learners without a success: which, after how many transitions, and what may help."""
    failing = [str(index) for index, success in enumerate(successes) if success == 0]
    if failing:
        warn(
            f"actor_critic: after {transitions:,} transitions no {colonies} colony reaches "
            f"the goal (learner {', '.join(failing)}): {_advice(config)}"
        )


def _advice(config: ActorCriticConfig) -> str:
    if "forfeit" in dict(config.env.reward.weighted):
        return "lower actor_critic.train.discount or raise .transitions"
    return (
        "ending early may pay more than moving slowly; lower actor_critic.train.discount, raise "
        ".transitions, or set actor_critic.env.reward.preset: goal_control_safe"
    )
