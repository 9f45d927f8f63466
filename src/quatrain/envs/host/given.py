"""an environment as Python has it -> the keys of the section `env` that make it

Lambdas, local classes and those of a notebook have no place that an import could name: this module
has them as attributes, in the process that defined them.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import gymnasium

from quatrain.envs.host.config import IN_PROCESS, frozen
from quatrain.envs.host.user_code import make_env, user_code
from quatrain.errors import ConfigError, DataError

_DEFINED: dict[str, Callable[..., Any]] = {}
REMEDY = (
    'give an id such as "CartPole-v1", a class, a function that returns a new environment, or a '
    'dictionary such as {"id": "CartPole-v1"}'
)


def __getattr__(name: str) -> Any:
    """Returns what was defined in this process under this name."""
    if name in _DEFINED:
        return _DEFINED[name]
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise DataError(
        f"{name} was defined in another process (a lambda, a local class, or one of a notebook); "
        "give it in env= again, once to quatrain.config or to quatrain.fit beside resume_from, or "
        'one of a module, as "module:name"'
    )


def keys_of(env: Any) -> dict[str, Any]:
    """Returns the keys of `env` that make an environment like this one, with its kind.

    Args:
        env: an id; a class or function; an environment of gymnasium.make; or a mapping of keys,
            whose `import` and `wrappers` may be callables and whose `kind` may be missing. A
            mapping that names no environment stays as it is.

    Raises:
        ConfigError: it is none of these, or cannot be made again.
        DataError: a callable without a kind raised when it was called to find out.
    """
    if isinstance(env, str):
        return keys_of({"import": None, "id": env})
    if isinstance(env, Mapping):
        return _with_kind(_as_text(env))
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise ConfigError(
            f"env is a {type(env).__name__}, a vector of environments; give a single one, of which "
            "the training makes as many as it needs"
        )
    if isinstance(env, gymnasium.Env):
        return _keys_of_instance(env)
    if callable(env):
        return keys_of({"import": env})
    if hasattr(env, "possible_agents"):
        raise _no_way(env)
    raise ConfigError(f"env is of type {type(env).__name__}; {REMEDY}")


def _no_way(env: object) -> ConfigError:
    name = type(env).__name__
    return ConfigError(
        f"env is an instance of {name}, which cannot be made again; give what makes it: its class, "
        f"or a function such as lambda: {name}(...)"
    )


def _as_text(env: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys with texts in place of callables, and a module beside its id."""
    keys = dict(env)
    maker, wrappers = (keys.get(name) for name in ("import", "wrappers"))
    if callable(maker):
        keys |= _called(maker, keys.get("kwargs", {}))
    elif not isinstance(maker, str | None):
        del keys["import"]
        keys = keys_of(maker) | keys
    if isinstance(wrappers, str | Mapping) or callable(wrappers):
        wrappers = [wrappers]
    if isinstance(wrappers, list | tuple):
        keys["wrappers"] = [_wrapper(each) for each in wrappers]
    if isinstance(keys.get("id"), str) and ":" in keys["id"]:
        keys["import"], _, keys["id"] = keys["id"].partition(":")
    if ":" in str(keys.get("import")):
        keys = {"id": None, **keys}
    return keys


def _with_kind(keys: dict[str, Any]) -> dict[str, Any]:
    if "kind" in keys or not (keys.get("id") or keys.get("import")):
        return keys
    module, colon, name = str(keys.get("import")).partition(":")
    return {
        "kind": _kind_of(module, name, keys.get("kwargs", {})) if colon else "gymnasium",
        **keys,
    }


def _kind_of(module: str, name: str, kwargs: Any) -> str:
    """Calls what makes an environment once, and returns its kind."""
    with user_code(lambda reason: f"env {name} cannot be made: {reason}"):
        env = make_env(module, name, "", kwargs if isinstance(kwargs, Mapping) else {})
        is_parallel = hasattr(env, "possible_agents")
        env.close()
    return "pettingzoo" if is_parallel else "gymnasium"


def _wrapper(wrapper: Any) -> Any:
    """Returns a wrapper's keys: it is a callable, (callable, kwargs), or has them already."""
    if callable(wrapper):
        return _called(wrapper, {})
    if isinstance(wrapper, list | tuple) and len(wrapper) == 2:
        wrapper = {"import": wrapper[0], "kwargs": wrapper[1]}
    if isinstance(wrapper, Mapping) and callable(wrapper.get("import")):
        return _called(wrapper["import"], wrapper.get("kwargs", {}))
    return wrapper


def _called(maker: Callable[..., Any], kwargs: Any) -> dict[str, Any]:
    """Returns the keys of a callable with these arguments, which stay in this process unless they
    are plain values.
    """
    try:
        frozen(kwargs)
    except ValueError:
        return {"import": name_of(partial(maker, **kwargs)), "kwargs": {}}
    return {"import": name_of(maker), "kwargs": kwargs}


def name_of(maker: Callable[..., Any]) -> str:
    """Returns module:name of a callable, or of its entry here if no import leads to it."""
    module, name = (getattr(maker, key, "") for key in ("__module__", "__qualname__"))
    is_importable = getattr(sys.modules.get(module), name, None) is maker
    if is_importable and module != "__main__":
        return f"{module}:{name}"
    # functools.partial has the name of its function, and a lambda none.
    last = getattr(getattr(maker, "func", maker), "__name__", "").replace("<lambda>", "")
    last = last or "factory"
    names = (f"{last}_{number}" if number else last for number in range(len(_DEFINED) + 1))
    free = next(each for each in names if _DEFINED.get(each, maker) is maker)
    _DEFINED[free] = maker
    return f"{IN_PROCESS}:{free}"


def _keys_of_instance(env: Any) -> dict[str, Any]:
    """Returns how gymnasium.make made an environment, and what it was wrapped in then."""
    spec = env.spec
    if spec is None or spec.id not in gymnasium.registry:
        raise _no_way(env.unwrapped)
    maker = spec.entry_point if isinstance(spec.entry_point, str) else ""
    package = maker.partition(":")[0].partition(".")[0]
    classes = {type(each).__name__: type(each) for each in _layers(env)}
    registered = len(gymnasium.registry[spec.id].additional_wrappers)
    return {
        "kind": "gymnasium",
        "id": spec.id,
        # It registers the id in another process, too.
        "import": None if package in ("", "__main__", "gymnasium") else package,
        # Whoever trains looks at no pictures.
        "kwargs": {name: value for name, value in spec.kwargs.items() if name != "render_mode"},
        "wrappers": [_again(each, classes) for each in spec.additional_wrappers[registered:]],
        "max_episode_steps": spec.max_episode_steps,
    }


def _layers(env: Any) -> Iterator[Any]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def _again(wrapper: Any, classes: Mapping[str, type]) -> dict[str, Any]:
    """Returns the keys of a wrapper's spec, which has the name of one of these classes."""
    if wrapper.kwargs is None:
        raise ConfigError(
            f"env is wrapped in {wrapper.name}, which does not record its arguments; give "
            f'env={{"id": ..., "wrappers": [{wrapper.name}]}}, or a function that returns a new one'
        )
    return _called(classes[wrapper.name], wrapper.kwargs)
