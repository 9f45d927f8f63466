"""config, code of users and libraries -> an environment of parallel agents, or one DataError

All of that code is called inside `user_code`: import, construction, spaces, reset, step and close.
"""

import difflib
import importlib
import inspect
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

import gymnasium

from quatrain.envs.host.config import IN_PROCESS, MAX_EPISODE_STEPS, HostEnv, Wrapper, thawed
from quatrain.envs.host.spaces import Interface, describe
from quatrain.errors import DataError

LONGEST_REASON = 300
LONGEST_SIGNATURE = 100
# Files that are not the user's: those below, and what is installed.
OTHERS = (Path(__file__).resolve().parents[2], Path(sysconfig.get_path("stdlib")))
INSTALLED = {"site-packages", "dist-packages"}
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


@contextmanager
def _without_arguments() -> Iterator[None]:
    """Hides the arguments of the process from a module that parses them when it is imported."""
    with _MAKING:
        argv = sys.argv
        sys.argv = argv[:1]
        try:
            yield
        finally:
            sys.argv = argv


def imported(module: str, attribute: str) -> Any:
    """Imports the module, and returns its attribute.

    Raises:
        DataError: it cannot be imported, or has no such attribute. SystemExit is not caught.
    """
    with _without_arguments():
        loaded = called(importlib.import_module, module)
        try:
            return getattr(loaded, attribute)
        except AttributeError:
            near = difflib.get_close_matches(attribute, vars(loaded), n=1)
            meant = f"; did you mean {near[0]}?" if near else "; mend its name"
            raise DataError(f"module {module} has no {attribute}{meant}") from None


def called(maker: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls what makes an environment, or imports its module.

    Raises:
        DataError: it raised an Exception; says what mends its cause.
    """
    try:
        return maker(*args, **kwargs)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{reason_of(error)}; {_remedy_of(error, maker)}") from error


def _remedy_of(error: Exception, maker: Callable[..., Any]) -> str:
    is_of_user = bool(_place_of(error))
    if isinstance(error, gymnasium.error.UnregisteredEnv):
        return "mend id, or name in import the module that registers it"
    if isinstance(error, ImportError) and is_of_user:
        return "install what it imports, or mend that line"
    if isinstance(error, ImportError):
        return (
            "install its package; a file of your own goes into inputs/MODEL/, as import: "
            "inputs.MODEL.FILE:CLASS (`make` and `quatrain` look at no PYTHONPATH of yours)"
        )
    if isinstance(error, TypeError) and "argument" in str(error) and not is_of_user:
        return f'mend its arguments, "kwargs": {{...}}{_signature_of(maker)}'
    return "mend it"


def _signature_of(maker: Callable[..., Any]) -> str:
    if isinstance(maker, partial):  # of gymnasium.make, which takes those of any
        return ""
    try:
        return f"; it takes {inspect.signature(maker)}"[:LONGEST_SIGNATURE]
    except (TypeError, ValueError):  # of a builtin
        return ""


def make_env(module: str, attribute: str, env_id: str, kwargs: Mapping[str, Any], *env: Any) -> Any:
    """Imports the module, if one is named, and returns what its attribute returns; without an
    attribute, the environment of a registered id.

    env: the environment that the attribute wraps; none if it makes one.

    A module that parses arguments when it is imported finds none.

    Raises:
        DataError: the code raised an Exception, or the attribute returned no environment.
            SystemExit is not caught.
    """
    with _without_arguments(), _kept_by_torch("default_device_kept"):
        if attribute:
            returned = called(imported(module, attribute), *env, **kwargs)
        else:
            if module:
                called(importlib.import_module, module)
            return called(partial(gymnasium.make, env_id), **kwargs)
    if isinstance(returned, type):
        name = returned.__name__
        raise DataError(f"{attribute} returned the class {name}; return {name}()")
    if not hasattr(returned, "reset"):
        raise DataError(f"{attribute} returned {returned!r:.80}; return an environment")
    return returned


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
    """Returns what an error says, and where in a file of the user it was raised, in one line."""
    try:
        text = " ".join(str(error).split())[:LONGEST_REASON]
    except BaseException:
        text = "it has no text, for its __str__ raises"
    if isinstance(error, DataError):
        return text
    return " ".join(filter(None, (f"{type(error).__name__}:", text, _place_of(error))))


def _place_of(error: BaseException) -> str:
    """Returns the innermost line of a file of the user's own; "" if none was running."""
    places = [
        f"({Path(frame.f_code.co_filename).name}, line {line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_of_user(frame.f_code.co_filename)
    ]
    return places[-1] if places else ""


def _is_of_user(file: str) -> bool:
    path = Path(file)
    is_installed = bool(INSTALLED & {*path.parts})
    return not (file.startswith("<") or is_installed or any(map(path.is_relative_to, OTHERS)))


# name of an agent -> its value of one step.
ByAgent = Mapping[str, Any]
# The only agent of a Gymnasium environment.
AGENT = "agent"


# What reset and step return in Gymnasium and PettingZoo; what errors of an older environment say,
# and how to mend it.
RESET = ("obs", "info")
STEP = ("obs", "reward", "terminated", "truncated", "info")
OF_OLD_API = ("argument 'seed'", "unpack (expected 5, got 4)")
OLD_API_REMEDY = (
    f"let reset(self, *, seed=None, options=None) return ({', '.join(RESET)}), and step "
    f"({', '.join(STEP)}), or convert one of the package gym by "
    "shimmy.GymV21CompatibilityV0(env=...)"
)


class ParallelAgents:
    """Refuses an environment of the API before Gymnasium at its first call."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(self, seed: int | None = None) -> Sequence[Any]:
        return _parts(RESET, self.env.reset, seed=seed)

    def step(self, actions: Any) -> Sequence[Any]:
        return _parts(STEP, self.env.step, actions)

    def __getattr__(self, name: str) -> Any:
        """Returns what is as it is: spaces, agents, metadata, render, close."""
        return getattr(self.env, name)


class SingleAgent(ParallelAgents):
    """Shows a Gymnasium environment as one of parallel agents, as PettingZoo defines them."""

    possible_agents = (AGENT,)

    def reset(self, seed: int | None = None) -> tuple[ByAgent, ...]:
        return tuple({AGENT: value} for value in super().reset(seed))

    def step(self, actions: ByAgent) -> tuple[ByAgent, ...]:
        return tuple([{AGENT: value} for value in _parts(STEP, self.env.step, actions[AGENT])])

    def observation_space(self, agent: str) -> Any:  # noqa: ARG002
        return self.env.observation_space

    def action_space(self, agent: str) -> Any:  # noqa: ARG002
        return self.env.action_space


def _parts(names: Sequence[str], method: Any, *actions: Any, **seed: Any) -> Sequence[Any]:
    """Returns what reset or step return: values of these names.

    Raises:
        DataError: the environment has the API before Gymnasium. What else it raises is not caught.
    """
    try:
        parts = method(*actions, **seed)
    except (TypeError, ValueError) as error:
        if any(words in str(error) for words in OF_OLD_API):
            raise DataError(f"{reason_of(error)}; {OLD_API_REMEDY}") from error
        raise
    if type(parts) is tuple and len(parts) == len(names):
        return parts
    what = f"{len(parts)} values" if isinstance(parts, tuple) else f"a {type(parts).__name__}"
    returned = f"{'reset' if names is RESET else 'step'} returned {what}"
    raise DataError(f"{returned}, not ({', '.join(names)}); {OLD_API_REMEDY}")


def make(config: HostEnv) -> Any:
    """Makes one environment of parallel agents.

    Raises:
        DataError: it cannot be imported, made or wrapped, or is recorded.
    """
    if config.kind not in ("gymnasium", "pettingzoo"):
        raise DataError(
            f"env {config.name} is a {config.kind}, which no environment is made of; give predict "
            "a request of the form of example_request()"
        )
    env = make_bare(config)
    for wrapper in config.wrappers:
        env = _wrap(config, env, wrapper)
    kind = f"env {config.name} is a {type(env).__name__}"
    is_parallel = hasattr(env, "possible_agents")
    if config.kind == "pettingzoo":
        if not is_parallel:
            raise DataError(
                f"{kind} without possible_agents; "
                "name a PettingZoo parallel environment, or set kind: gymnasium"
            )
        return ParallelAgents(env)
    if is_parallel:
        raise DataError(f"{kind}, which is no Gymnasium environment; set kind: pettingzoo")
    for name in ("observation_space", "action_space"):
        if not hasattr(env, name):
            raise DataError(f"{kind} without {name}; set it to a gymnasium.Space in __init__")
    return SingleAgent(env)


def _wrap(config: HostEnv, env: Any, wrapper: Wrapper) -> Any:
    module, _, attribute = wrapper.import_.partition(":")
    with user_code(
        lambda reason: (
            f"env {config.name} cannot be wrapped in {wrapper.name}: {reason} (wrappers of env)"
        )
    ):
        return make_env(module, attribute, "", thawed(wrapper.kwargs), env)


def make_bare(config: HostEnv) -> Any:
    """Makes the environment without its wrappers; agents that act in turns become parallel ones.

    Raises:
        DataError: it cannot be imported or made, or its agents have to act in turns.
    """
    module, _, attribute = (config.import_ or "").partition(":")
    kwargs = thawed(config.kwargs)
    if not attribute:
        # None leaves the registered limit; a number takes its place, also where it is larger.
        kwargs.setdefault("max_episode_steps", config.max_episode_steps)
    with user_code(lambda reason: f"env {config.name} cannot be made: {reason}"):
        env = make_env(module, attribute, str(config.id), kwargs)
        if not hasattr(env, "agent_iter"):
            return env
        if getattr(env, "metadata", {}).get("is_parallelizable"):
            return importlib.import_module("pettingzoo.utils").aec_to_parallel(env)
    raise DataError(
        f"env {config.name} is a {type(env).__name__}, whose agents act in turns, without "
        "is_parallelizable in its metadata; name the parallel_env of its module"
    )


def _own_limit(env: Any) -> int | None:
    """Returns the limit of steps that an environment is registered or wrapped with."""
    limits = [getattr(getattr(env, "spec", None), "max_episode_steps", None)]
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return min((limit for limit in limits if limit is not None), default=None)


def _shown(maker: str) -> str:
    """Returns what makes an environment as a call in Python has it."""
    module, _, name = maker.partition(":")
    return name if module == IN_PROCESS else f'"{maker}"'


def _limit(config: HostEnv, env: Any) -> int:
    """Returns the steps after which an episode is truncated.

    Raises:
        DataError: the environment has no limit of its own, and the config wants it.
    """
    if config.max_episode_steps is not None:
        return config.max_episode_steps
    limit = _own_limit(env.env) if isinstance(env, SingleAgent) else None
    if limit is None:
        key, value = ("id", config.id) if config.id else ("import", config.import_)
        raise DataError(
            f"it {'is registered with' if config.id else 'has'} no limit of steps, as "
            "max_episode_steps: null requires; give a number, which changes no episode that ends "
            "before: "
            f'env={{"{key}": {_shown(str(value))}, "max_episode_steps": 1000}}'
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
