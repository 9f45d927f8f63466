"""config -> one environment of a user, as one of parallel agents, and the sizes of its spaces"""

from collections.abc import Mapping
from typing import Any

from quatrain.envs.host.config import MAX_EPISODE_STEPS, HostEnv
from quatrain.envs.host.spaces import Interface, describe
from quatrain.envs.host.user_code import make_env, user_code
from quatrain.errors import DataError

# name of an agent -> its value of one step.
ByAgent = Mapping[str, Any]
# The only agent of a Gymnasium environment.
AGENT = "agent"


class SingleAgent:
    """Shows a Gymnasium environment as one of parallel agents, as PettingZoo defines them."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = [AGENT]

    def reset(self, seed: int | None = None) -> tuple[ByAgent, ...]:
        return tuple({AGENT: value} for value in self.env.reset(seed=seed))

    def step(self, actions: ByAgent) -> tuple[ByAgent, ...]:
        return tuple({AGENT: value} for value in self.env.step(actions[AGENT]))

    def observation_space(self, agent: str) -> Any:  # noqa: ARG002
        return self.env.observation_space

    def action_space(self, agent: str) -> Any:  # noqa: ARG002
        return self.env.action_space

    def close(self) -> None:
        self.env.close()


def make(config: HostEnv) -> Any:
    """Makes one environment of parallel agents.

    Raises:
        DataError: it cannot be imported or made.
    """
    module, _, attribute = (config.import_ or "").partition(":")
    kwargs = dict(config.kwargs)
    if not attribute:
        # None leaves the registered limit; a number takes its place, also where it is larger.
        kwargs.setdefault("max_episode_steps", config.max_episode_steps)
    with user_code(
        lambda reason: (
            f"env {config.name} cannot be made: {reason}; mend the keys id, import and kwargs of "
            "env in params.yaml, or install its package"
        )
    ):
        env = make_env(module, attribute, str(config.id), kwargs)
        is_parallel = hasattr(env, "possible_agents")
        is_aec = hasattr(env, "agent_iter")
        is_single = hasattr(env, "observation_space") and not is_parallel
    kind = f"env {config.name} is a {type(env).__name__}"
    if is_aec:
        raise DataError(
            f"{kind}, whose agents act in turns; name the parallel_env of its module, or wrap it "
            "(pettingzoo.utils.aec_to_parallel)"
        )
    if config.kind == "pettingzoo":
        if not is_parallel:
            raise DataError(
                f"{kind} without possible_agents; "
                "name a PettingZoo parallel environment, or set kind: gymnasium"
            )
        return env
    if not is_single:
        raise DataError(
            f"{kind}, which is no Gymnasium environment; "
            "return a gymnasium.Env, or set kind: pettingzoo"
        )
    return SingleAgent(env)


def _limit(config: HostEnv, env: Any) -> int:
    """Returns the steps after which an episode is truncated.

    Raises:
        DataError: the environment has no limit of its own, and the config wants it.
    """
    if config.max_episode_steps is not None:
        return config.max_episode_steps
    spec = getattr(env.env, "spec", None) if isinstance(env, SingleAgent) else None
    limit = getattr(spec, "max_episode_steps", None)
    if limit is None:
        raise DataError(
            "it is registered with no limit of steps, as max_episode_steps: null requires; give a "
            "number, which changes nothing if its episodes end before"
        )
    if not 1 <= limit <= MAX_EPISODE_STEPS:
        raise DataError(
            f"it is registered with a limit of {limit} steps, and at most {MAX_EPISODE_STEPS} are "
            "kept; set max_episode_steps"
        )
    return int(limit)


def interface_of(config: HostEnv, env: Any) -> Interface:
    """Returns the sizes of observations and actions.

    Raises:
        DataError: it raises, or has spaces that no learner here can use.
    """
    with user_code(lambda reason: f"env {config.name}: {reason}"):
        spaces = {
            agent: (env.observation_space(agent), env.action_space(agent))
            for agent in env.possible_agents
        }
        return describe(spaces, _limit(config, env))
