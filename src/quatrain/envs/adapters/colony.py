"""Rules, plates -> Gymnasium environments, numpy in and out, for use with any library."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, MultiBinary
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, UInt8
from torch import Tensor

from quatrain.envs.adapters import rendering
from quatrain.envs.adapters.settings import configure, default_params
from quatrain.envs.adapters.simulation import (
    RENDER_MODES,
    RESET_NEEDED,
    check_options,
    check_render_mode,
)
from quatrain.envs.colony.actions import check_actions
from quatrain.envs.colony.config import Env
from quatrain.envs.colony.dynamics import Colonies, World, make_world
from quatrain.envs.colony.episodes import select
from quatrain.envs.colony.features import Observation, observe
from quatrain.envs.colony.plates import (
    TRAINING,
    Plates,
    fixed_plate,
    sample_plates,
    two_ridges_plate,
    user_plate,
)
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES
from quatrain.envs.colony.world import StepResult, start, step
from quatrain.errors import DataError

# node, graph, parent, mask as in `features.Observation`, padded to max_nodes cells.
ObservationArrays = dict[str, np.ndarray]
SINGLE_PLATES: dict[str, Callable[[int], Plates]] = {
    "fixed": fixed_plate,
    "two_ridges": two_ridges_plate,
}
FRAMES_PER_SECOND = 8
NAME = "quatrain/Colony-v0"
# Info about an episode that ended.
EPISODE_INFO = ("reason", "n", "episode_return", "episode_length", "components_sum")


def observation_space(rules: Env, graph_only: bool = False) -> gymnasium.Space:
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


def action_space(rules: Env) -> Box:
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
        "render_modes": list(RENDER_MODES),
        "render_fps": FRAMES_PER_SECOND,
    }

    def __init__(
        self,
        rules: Env,
        plates: Plates,
        num_envs: int,
        graph_only: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space = observation_space(rules, graph_only)
        self.single_action_space = action_space(rules)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rules = rules
        self._shown = ("graph",) if graph_only else Observation._fields
        # `step` of this class checks actions itself, and their count too.
        self._world = make_world(rules.model_copy(update={"check_actions": False}), plates)
        self._generator = torch.Generator(torch.get_default_device())
        self._colonies: Colonies | None = None
        self._sums = torch.zeros(num_envs, len(rules.reward_weights))
        self._returns = torch.zeros(num_envs)
        self._final: Colonies | None = None
        self.render_mode = check_render_mode(render_mode)

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
        check_options(options)
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
        self._final = result.final
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

    def render(self) -> tuple[Any, ...] | None:
        """Returns a picture of each colony, or None without a render_mode."""
        if not self.render_mode:
            return None
        colonies = self._running()
        return tuple(draw_colony(self._world, colonies, env) for env in range(self.num_envs))

    def render_final(self) -> np.ndarray:
        """Returns the picture of the first colony before it was reset."""
        return draw_colony(self._world, self._final if self._final else self._running(), 0)

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

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": list(RENDER_MODES),
        "render_fps": FRAMES_PER_SECOND,
    }

    def __init__(
        self,
        rules: Env,
        plates: Plates,
        graph_only: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = observation_space(rules, graph_only)
        self.action_space = action_space(rules)
        self.render_mode = check_render_mode(render_mode)
        self._colonies = ColonyVectorEnv(rules, plates, 1, graph_only, render_mode)
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

    def render(self) -> Any:
        """Returns the picture of the colony, or None without a render_mode."""
        pictures = self._colonies.render()
        if pictures is None:
            return None
        return pictures[0] if self._next is None else self._colonies.render_final()


def make_env(
    render_mode: str | None = None,
    graph_only: bool = False,
    plates: str | np.ndarray | None = None,
    plate_count: int | None = None,
    plate_seed: int = 0,
    **settings: Any,
) -> ColonyEnv:
    """Returns one colony; settings are keys of `actor_critic.env` in params.yaml.

    plates: default_law, fixed, two_ridges, or the stiffness at each pixel; plate_count: how many
    of default_law, one of which each episode draws. By default those of `actor_critic.collect`.
    With `graph_only` the observation is that of the whole colony.

    Raises:
        DataError: a setting is not allowed.
    """
    rules, some_plates = _configure(plates, plate_count, plate_seed, settings)
    return ColonyEnv(rules, some_plates, graph_only, render_mode)


def make_vector_env(
    num_envs: int,
    render_mode: str | None = None,
    graph_only: bool = False,
    plates: str | np.ndarray | None = None,
    plate_count: int | None = None,
    plate_seed: int = 0,
    **settings: Any,
) -> ColonyVectorEnv:
    """Returns colonies with the settings of `make_env`, which step together."""
    rules, some_plates = _configure(plates, plate_count, plate_seed, settings)
    return ColonyVectorEnv(rules, some_plates, num_envs, graph_only, render_mode)


def _configure(
    choice: str | np.ndarray | None,
    count: int | None,
    seed: int,
    settings: dict[str, Any],
) -> tuple[Env, Plates]:
    defaults = default_params()["actor_critic"]
    env = configure(NAME, Env, defaults["env"], settings)
    count = defaults["collect"]["n_train"] if count is None else count
    choice = defaults["collect"]["plates"] if choice is None else choice
    if isinstance(choice, np.ndarray):
        return env, _measured(choice, env.width)
    if choice == "default_law":
        return env, sample_plates(TRAINING, count, env.width, np.random.default_rng(seed))
    if choice not in SINGLE_PLATES:
        names = ", ".join(("default_law", *SINGLE_PLATES))
        raise DataError(f"{NAME}: plates = {choice!r}; known: {names}, or an array")
    return env, SINGLE_PLATES[choice](env.width)


def _measured(intensity: np.ndarray, width: int) -> Plates:
    if intensity.shape != (width,) or not (np.isfinite(intensity) & (intensity > 0)).all():
        raise DataError(
            f"{NAME}: plates has shape {intensity.shape}; give {width} positive numbers, the "
            "stiffness at each pixel of the width"
        )
    return user_plate(intensity.astype(np.float32))


def draw_colony(world: World, colonies: Colonies, env: int) -> UInt8[np.ndarray, "height width 3"]:
    """Draws a plate, stiffer where it is darker, the goal as a line, cells and their parents."""
    rules = world.rules
    scale = rendering.SIDE / max(rules.width, rules.height)
    picture = _draw_plate(world, int(colonies.substrate[env]), scale)
    count = min(int(colonies.n[env]), rules.max_nodes)
    position = colonies.pos[env, :count].numpy(force=True) * scale
    parents = colonies.parent[env, :count].tolist()
    for (x, y), parent in zip(position.tolist(), parents, strict=True):
        if 0 <= parent < count:
            rendering.line(picture, (x, y), tuple(position[parent].tolist()), rendering.INK, 1.0)
    new = colonies.new[env, :count].tolist()
    for (x, y), is_new in zip(position.tolist(), new, strict=True):
        color = rendering.AGENTS[1] if is_new else rendering.AGENTS[0]
        rendering.disc(picture, x, y, 4, color)
    return picture


def _draw_plate(world: World, plate: int, scale: float) -> np.ndarray:
    rules = world.rules
    width = round(rules.width * scale)
    columns = (np.arange(width) / scale).astype(int).clip(0, rules.width - 1)
    stiffness = np.log(world.intensity[plate].numpy(force=True)[columns])
    share = (stiffness - stiffness.min()) / max(np.ptp(stiffness), 1e-6)
    height = round(rules.height * scale)
    picture = rendering.shade(share, height, rendering.SOFT, rendering.STIFF)
    x = rules.goal * scale
    rendering.line(picture, (x, 0), (x, height), rendering.GOAL, 3.0)
    return picture


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
