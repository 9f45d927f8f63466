"""Rules, plates -> Gymnasium environments, numpy in and out, for use with any library."""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, MultiBinary
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool
from torch import Tensor

from quatrain.envs.colony.actions import check_actions
from quatrain.envs.colony.dynamics import Colonies, make_world
from quatrain.envs.colony.episodes import select
from quatrain.envs.colony.features import Observation, observe
from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES, Rules
from quatrain.envs.colony.world import StepResult, start, step

# node, graph, parent, mask as in `features.Observation`, padded to max_nodes cells.
ObservationArrays = dict[str, np.ndarray]
UNKNOWN_OPTIONS = "reset() takes no options, got {}; remove them."
# Info about an episode that ended.
EPISODE_INFO = ("reason", "n", "episode_return", "episode_length", "components_sum")
RESET_NEEDED = "No episode is running: call reset() before step()."


def observation_space(rules: Rules, graph_only: bool = False) -> gymnasium.Space:
    """Returns the space of one colony."""
    cells = rules.max_nodes
    graph = Box(-np.inf, np.inf, (GRAPH_FEATURES[rules.features],), np.float32)
    if graph_only:
        return Dict({"graph": graph})
    return Dict(
        {
            "node": Box(-np.inf, np.inf, (cells, NODE_FEATURES[rules.features]), np.float32),
            "graph": graph,
            "parent": Box(-1, cells - 1, (cells,), np.int64),
            "mask": MultiBinary(cells),
        }
    )


def action_space(rules: Rules) -> Box:
    """Returns the space of one colony: five numbers in their own units."""
    low, high = np.array(rules.bounds, np.float32).T
    return Box(low, high, dtype=np.float32)


class ColonyVectorEnv(VectorEnv[ObservationArrays, np.ndarray, np.ndarray]):
    """Steps colonies together and resets a colony in the step that ends its episode.

    In such a step `info` holds, for the colonies marked in `info["_<name>"]`: reason (a code of
    rules.py), n (cells, also beyond max_nodes), episode_return, episode_length, components_sum
    (unweighted) of the ended episode; and as in Gymnasium final_obs, its last observation, and
    final_info, the same five values. With `graph_only` the observation is that of the whole colony,
    which takes a fraction of the time.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "render_modes": [],
    }

    def __init__(
        self, rules: Rules, plates: Plates, num_envs: int, graph_only: bool = False
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space = observation_space(rules, graph_only)
        self.single_action_space = action_space(rules)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rules = rules
        self._shown = ("graph",) if graph_only else Observation._fields
        # `step` of this class checks actions itself, and their count too.
        self._world = make_world(rules._replace(check_actions=False), plates)
        self._generator = torch.Generator(torch.get_default_device())
        self._colonies: Colonies | None = None
        self._sums = torch.zeros(num_envs, len(rules.reward))
        self._returns = torch.zeros(num_envs)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[ObservationArrays, dict[str, Any]]:
        """Starts all episodes; without a seed continues the random numbers, or seeds them randomly.

        Raises:
            ValueError: there are options.
        """
        if options:
            raise ValueError(UNKNOWN_OPTIONS.format(sorted(options)))
        super().reset(seed=seed)
        if seed is not None:
            self._generator.manual_seed(seed)
        elif self._colonies is None:
            self._generator.manual_seed(int(self.np_random.integers(2**63)))
        self._colonies = start(self._world, self.num_envs, self._generator)
        self._sums = torch.zeros_like(self._sums)
        self._returns = torch.zeros_like(self._returns)
        return self.observation(), {}

    def step(
        self,
        actions: np.ndarray,
    ) -> tuple[ObservationArrays, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all colonies; never clips actions.

        Raises:
            ValueError: actions are not (num_envs, 5) numbers within their bounds.
            gymnasium.error.ResetNeeded: reset was never called.
        """
        action = torch.tensor(np.asarray(actions, np.float32))
        check_actions(self._rules, action, self.num_envs)
        result = step(self._world, self._running(), action, self._generator)
        self._colonies = result.colonies
        self._sums = self._sums + result.components
        self._returns = self._returns + result.reward
        return (
            self.observation(),
            _numpy(result.reward),
            _numpy(result.terminated),
            _numpy(result.truncated),
            self._episode_info(result),
        )

    def observation(self) -> ObservationArrays:
        return self._observe(self._running())

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the full state, with which an environment of the same rules and plates continues
        bit for bit.
        """
        state = {f"colonies/{name}": leaf for name, leaf in self._running()._asdict().items()}
        state["components_sum"] = self._sums
        state["episode_return"] = self._returns
        state["generator"] = self._generator.get_state()
        return {name: leaf.clone() for name, leaf in state.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restores a state of `state_dict`.

        Raises:
            ValueError: the numbers of colonies, cells or reward components differ.
        """
        shapes = tuple(state["colonies/age"].shape), tuple(state["components_sum"].shape)
        expected = (self.num_envs, self._rules.max_nodes), tuple(self._sums.shape)
        if shapes != expected:
            raise ValueError(
                f"The state is of (colonies, cells), (colonies, components) {shapes}, "
                f"this environment of {expected}; "
                "make it of the rules and with the num_envs that the state was saved with."
            )
        self._colonies = Colonies(*(state[f"colonies/{name}"].clone() for name in Colonies._fields))
        self._sums = state["components_sum"].clone()
        self._returns = state["episode_return"].clone()
        self._generator.set_state(state["generator"])

    def _running(self) -> Colonies:
        if self._colonies is None:
            raise gymnasium.error.ResetNeeded(RESET_NEEDED)
        return self._colonies

    def _observe(self, colonies: Colonies) -> ObservationArrays:
        graph_only = self._shown == ("graph",)
        observation = observe(self._world, colonies, self._rules.max_nodes, graph_only)
        arrays = {name: _numpy(getattr(observation, name)) for name in self._shown}
        if not graph_only:
            arrays["mask"] = arrays["mask"].astype(np.int8)
        return arrays

    def _episode_info(self, result: StepResult) -> dict[str, Any]:
        """Returns the info about episodes that ended, and resets their sums."""
        ended = result.terminated | result.truncated
        if not ended.any():
            return {}
        final = result.final
        values = (result.reason, final.n, self._returns, final.t, self._sums)
        episode = dict(zip(EPISODE_INFO, values, strict=True))
        self._returns = _zero_where(ended, self._returns)
        self._sums = _zero_where(ended, self._sums)
        return {
            **_masked(episode, ended),
            "final_obs": self._final_observations(final, ended),
            "_final_obs": _numpy(ended),
            "final_info": _masked(episode, ended),
            "_final_info": _numpy(ended),
        }

    def _final_observations(self, final: Colonies, ended: Tensor) -> np.ndarray:
        indices = ended.nonzero()[:, 0]
        batch = self._observe(select(final, indices))
        observations = np.full(self.num_envs, None, dtype=object)
        for position, index in enumerate(indices.tolist()):
            observations[index] = {name: values[position].copy() for name, values in batch.items()}
        return observations


class ColonyEnv(gymnasium.Env[ObservationArrays, np.ndarray]):
    """Steps one colony; `info` of a step that ends its episode is that of ColonyVectorEnv."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, rules: Rules, plates: Plates) -> None:
        self.observation_space = observation_space(rules)
        self.action_space = action_space(rules)
        self._colonies = ColonyVectorEnv(rules, plates, 1)
        self._next: ObservationArrays | None = None
        """The first observation of the next episode, once an episode has ended."""

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[ObservationArrays, dict[str, Any]]:
        """Starts an episode; after an ended one and without a seed, with the colony already drawn.

        Raises:
            ValueError: there are options.
        """
        super().reset(seed=seed)
        observation = self._next
        info: dict[str, Any] = {}
        if seed is not None or options or observation is None:
            batch, info = self._colonies.reset(seed=seed, options=options)
            observation = _first(batch)
        self._next = None
        return observation, info

    def step(
        self,
        action: np.ndarray,
    ) -> tuple[ObservationArrays, float, bool, bool, dict[str, Any]]:
        """Steps the colony; never clips the action.

        Raises:
            ValueError: action is not five numbers within their bounds.
            gymnasium.error.ResetNeeded: the episode has ended, or was never started.
        """
        if self._next is not None:
            raise gymnasium.error.ResetNeeded(RESET_NEEDED)
        batch, reward, terminated, truncated, infos = self._colonies.step(np.asarray(action)[None])
        observation = _first(batch)
        info = {}
        if infos:
            self._next = observation
            observation = infos["final_obs"][0]
            info = {name: infos[name][0] for name in EPISODE_INFO}
        return observation, float(reward[0]), bool(terminated[0]), bool(truncated[0]), info


def _numpy(values: Tensor) -> np.ndarray:
    """Returns a copy, which the caller may modify."""
    return values.cpu().numpy().copy()


def _first(batch: ObservationArrays) -> ObservationArrays:
    return {name: values[0] for name, values in batch.items()}


def _zero_where(mask: Bool[Tensor, " env"], values: Tensor) -> Tensor:
    return torch.where(mask.view(-1, *[1] * (values.dim() - 1)), 0, values)


def _masked(episode: dict[str, Tensor], ended: Bool[Tensor, " env"]) -> dict[str, np.ndarray]:
    """Returns arrays over all colonies, each with a mask, as Gymnasium's vector environments do."""
    values = {name: _numpy(_zero_where(~ended, value)) for name, value in episode.items()}
    return values | {f"_{name}": _numpy(ended) for name in episode}
