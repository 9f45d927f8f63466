"""Rules, plates -> environments in Gymnasium's terms, in which any library can learn: numpy in, numpy out."""

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
from quatrain.envs.colony.features import observe
from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES, Rules
from quatrain.envs.colony.world import StepResult, start, step

Seen = dict[str, np.ndarray]
"""node, graph, parent, mask as in `features.Observation`, with room for max_nodes cells."""
UNKNOWN_OPTIONS = "reset() takes no options, got {}; remove them."
ENDED = ("reason", "n", "episode_return", "episode_length", "components_sum")
"""What is told about an episode that ended."""
RESET_NEEDED = "No episode is running: call reset() before step()."


def observation_space(rules: Rules) -> gymnasium.Space:
    """Of one colony."""
    cells, node, graph = (
        rules.max_nodes,
        NODE_FEATURES[rules.features],
        GRAPH_FEATURES[rules.features],
    )
    return Dict(
        {
            "node": Box(-np.inf, np.inf, (cells, node), np.float32),
            "graph": Box(-np.inf, np.inf, (graph,), np.float32),
            "parent": Box(-1, cells - 1, (cells,), np.int64),
            "mask": MultiBinary(cells),
        }
    )


def action_space(rules: Rules) -> Box:
    """Of one colony: the five numbers in their own units."""
    low, high = np.array(rules.bounds, np.float32).T
    return Box(low, high, dtype=np.float32)


class ColonyVectorEnv(VectorEnv[Seen, np.ndarray, np.ndarray]):
    """Colonies that step together; one whose episode ends begins anew in the same step.

    In such a step `info` holds, where `info["_<name>"]` says so: reason (a code of rules.py), n (cells, also beyond
    max_nodes), episode_return, episode_length, components_sum (before weighing), all of the episode that ended; and
    as Gymnasium has it final_obs, its last observation, and final_info, the same five again.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(self, rules: Rules, plates: Plates, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = observation_space(rules)
        self.single_action_space = action_space(rules)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rules = rules
        self._world = make_world(
            rules._replace(check_actions=False), plates
        )  # checked here, with the number of rows
        self._generator = torch.Generator(torch.get_default_device())
        self._colonies: Colonies | None = None
        self._sums = torch.zeros(num_envs, len(rules.reward))
        self._returns = torch.zeros(num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin all episodes; without a seed the random numbers go on, the first time from nowhere in particular.

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
        self, actions: np.ndarray
    ) -> tuple[Seen, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """The action is used as it is, or refused.

        Raises:
            ValueError: actions are not (num_envs, 5) numbers within their bounds.
            gymnasium.error.ResetNeeded: reset was never called.
        """
        action = torch.tensor(np.asarray(actions, np.float32))
        check_actions(self._rules, action, self.num_envs)
        stepped = step(self._world, self._running(), action, self._generator)
        self._colonies = stepped.colonies
        self._sums = self._sums + stepped.components
        self._returns = self._returns + stepped.reward
        info = self._ended(stepped)
        rewards, terminated, truncated = map(
            _numpy, (stepped.reward, stepped.terminated, stepped.truncated)
        )
        return self.observation(), rewards, terminated, truncated, info

    def observation(self) -> Seen:
        """What is seen now; as `step` returned it."""
        return self._seen(self._running())

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that changes; an environment of the same rules and plates that loads it goes on bit for bit."""
        colonies = {
            f"colonies/{name}": leaf.clone() for name, leaf in self._running()._asdict().items()
        }
        sums = {"components_sum": self._sums.clone(), "episode_return": self._returns.clone()}
        return colonies | sums | {"generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state_dict` gave.

        Raises:
            ValueError: it is of another number of colonies, of cells or of reward components.
        """
        found = tuple(state["colonies/age"].shape), tuple(state["components_sum"].shape)
        expected = (self.num_envs, self._rules.max_nodes), tuple(self._sums.shape)
        if found != expected:
            raise ValueError(
                f"The state is of (colonies, cells), (colonies, components) {found}, this environment of {expected}; "
                "make it of the rules and with the num_envs that the state was saved with."
            )
        self._colonies = Colonies(*(state[f"colonies/{name}"].clone() for name in Colonies._fields))
        self._sums, self._returns = state["components_sum"].clone(), state["episode_return"].clone()
        self._generator.set_state(state["generator"])

    def _running(self) -> Colonies:
        if self._colonies is None:
            raise gymnasium.error.ResetNeeded(RESET_NEEDED)
        return self._colonies

    def _seen(self, colonies: Colonies) -> Seen:
        seen = observe(self._world, colonies, self._rules.max_nodes)
        arrays = {name: _numpy(values) for name, values in seen._asdict().items()}
        return arrays | {"mask": arrays["mask"].astype(np.int8)}

    def _ended(self, stepped: StepResult) -> dict[str, Any]:
        """The info about episodes that ended, whose sums begin anew."""
        over = stepped.terminated | stepped.truncated
        if not over.any():
            return {}
        last = stepped.final
        ended = dict(
            zip(ENDED, (stepped.reason, last.n, self._returns, last.t, self._sums), strict=True)
        )
        self._returns, self._sums = (_cleared(sums, over) for sums in (self._returns, self._sums))
        final = {"final_obs": self._final(last, over), "_final_obs": _numpy(over)}
        return {
            **_told(ended, over),
            **final,
            "final_info": _told(ended, over),
            "_final_info": _numpy(over),
        }

    def _final(self, last: Colonies, over: Tensor) -> np.ndarray:
        """The last observation of each colony whose episode ended, None of the others."""
        rows = over.nonzero()[:, 0]
        seen, final = self._seen(select(last, rows)), np.full(self.num_envs, None, dtype=object)
        for place, row in enumerate(rows.tolist()):
            final[row] = {name: values[place].copy() for name, values in seen.items()}
        return final


class ColonyEnv(gymnasium.Env[Seen, np.ndarray]):
    """One colony; a step that ends its episode tells in `info` what ColonyVectorEnv tells."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, rules: Rules, plates: Plates) -> None:
        self.observation_space = observation_space(rules)
        self.action_space = action_space(rules)
        self._colonies = ColonyVectorEnv(rules, plates, 1)
        self._next: Seen | None = None
        """The first observation of the next episode, once one has ended."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin an episode: after one that ended, and without a seed, with the colony that came next.

        Raises:
            ValueError: there are options.
        """
        super().reset(seed=seed)
        if seed is None and not options and self._next is not None:
            seen, self._next = self._next, None
            return seen, {}
        batch, info = self._colonies.reset(seed=seed, options=options)
        self._next = None
        return _first(batch), info

    def step(self, action: np.ndarray) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """The action is used as it is, or refused.

        Raises:
            ValueError: action is not five numbers within their bounds.
            gymnasium.error.ResetNeeded: the episode has ended, or none was begun.
        """
        if self._next is not None:
            raise gymnasium.error.ResetNeeded(RESET_NEEDED)
        batch, reward, terminated, truncated, infos = self._colonies.step(np.asarray(action)[None])
        told = float(reward[0]), bool(terminated[0]), bool(truncated[0])
        if not infos:
            return _first(batch), *told, {}
        self._next = _first(batch)
        return infos["final_obs"][0], *told, {name: infos[name][0] for name in ENDED}


def _numpy(values: Tensor) -> np.ndarray:
    """A copy, so that what was given away is the caller's."""
    return values.cpu().numpy().copy()


def _first(batch: Seen) -> Seen:
    return {name: values[0] for name, values in batch.items()}


def _cleared(sums: Tensor, over: Bool[Tensor, " colony"]) -> Tensor:
    return torch.where(over.view(-1, *[1] * (sums.dim() - 1)), 0, sums)


def _told(ended: dict[str, Tensor], over: Bool[Tensor, " colony"]) -> dict[str, np.ndarray]:
    """In the form of Gymnasium's vector environments: arrays of all rows, each with a mask of those that count."""
    values = {name: _numpy(_cleared(values, ~over)) for name, values in ended.items()}
    return values | {f"_{name}": _numpy(over) for name in ended}
