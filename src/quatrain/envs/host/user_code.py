"""config, code of users and libraries -> an environment of parallel agents, or one DataError

All of that code is called inside `user_code`: import, construction, spaces, reset, step and close.
"""

import importlib
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock
from typing import Any

import gymnasium

from quatrain.envs.host.config import MAX_EPISODE_STEPS, HostEnv
from quatrain.envs.host.spaces import Interface, describe
from quatrain.errors import DataError

LONGEST_REASON = 300
# Only one thread at a time may hide the arguments of the process.
_MAKING = RLock()


@contextmanager
def user_code(message: Callable[[str], str]) -> Iterator[None]:
    """Raises whatever the block raises as a DataError, and restores the modes of torch.

    message: the reason -> the line; called only where the block raises. A Ctrl-C passes.

    Raises:
        DataError: the block raised, be it SystemExit.
    """
    with _kept_by_torch("modes_kept"):
        try:
            yield
        except BaseException as error:
            if _is_ctrl_c(error):
                raise
            raise DataError(message(reason_of(error))) from error


def make_env(module: str, attribute: str, env_id: str, kwargs: Mapping[str, Any]) -> Any:
    """Imports the module, if one is named, and returns what its attribute returns; without an
    attribute, the environment of a registered id.

    A module that parses arguments when it is imported finds none.

    Raises:
        DataError: the attribute returned a class. What the code raises is not caught.
    """
    with _MAKING, _kept_by_torch("default_device_kept"):
        argv = sys.argv
        sys.argv = argv[:1]
        try:
            imported = importlib.import_module(module) if module else None
            if not attribute:
                return gymnasium.make(env_id, **kwargs)
            env = getattr(imported, attribute)(**kwargs)
        finally:
            sys.argv = argv
    if isinstance(env, type):
        raise DataError(f"{attribute} returned the class {env.__name__}; return {env.__name__}()")
    return env


def _kept_by_torch(name: str) -> AbstractContextManager[None]:
    """Keeps nothing where torch is not loaded: a JAX model never loads it."""
    if "torch" not in sys.modules:
        return nullcontext()
    framework = importlib.import_module("quatrain.frameworks.torch")
    kept: AbstractContextManager[None] = getattr(framework, name)()
    return kept


def _is_ctrl_c(error: BaseException) -> bool:
    """Returns whether a signal may have raised it: a stage's own handler never does so."""
    return (
        isinstance(error, KeyboardInterrupt)
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def reason_of(error: BaseException) -> str:
    """Returns what an error says, in one line."""
    try:
        text = " ".join(str(error).split())[:LONGEST_REASON]
    except BaseException:
        text = "it has no text, for its __str__ raises"
    return text if isinstance(error, DataError) else f"{type(error).__name__}: {text}"


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
            "number, which changes no episode that ends before"
        )
    if not 1 <= limit <= MAX_EPISODE_STEPS:
        raise DataError(
            f"it is registered with a limit of {limit} steps, and at most {MAX_EPISODE_STEPS} are "
            "kept; set max_episode_steps"
        )
    return int(limit)


def interface_of(config: HostEnv, env: Any, has_mask: bool) -> Interface:
    """Returns the sizes of observations and actions; has_mask: as in `describe`.

    Raises:
        DataError: it raises, or has spaces that no learner here can use.
    """
    with user_code(lambda reason: f"env {config.name}: {reason}"):
        spaces = {
            agent: (env.observation_space(agent), env.action_space(agent))
            for agent in env.possible_agents
        }
        return describe(spaces, _limit(config, env), has_mask)
