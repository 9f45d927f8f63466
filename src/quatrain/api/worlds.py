"""id -> an environment of this package under the Gymnasium API."""

from importlib import import_module
from typing import Any

from quatrain.api.arguments import check_count, check_type
from quatrain.api.session import require
from quatrain.errors import ConfigError
from quatrain.validation import nearest

NAMESPACE = "quatrain/"


def make(id: str, num_envs: int | None = None, **settings: Any) -> Any:
    """Returns an environment of this package under the Gymnasium API.

    Args:
        id: such as `quatrain/Colony-v0`; `Colony-v0` means the same.
        num_envs: None: one environment; else a vector of so many, by batched code where there is.
        **settings: passed to `gymnasium.make` or `gymnasium.make_vec`, such as `render_mode`.

    Returns:
        A `gymnasium.Env`, or a `gymnasium.vector.VectorEnv` if `num_envs` is given.

    Raises:
        PackageMissing: gymnasium is not installed.
        ConfigError: there is no such environment; the line names those that there are. Or num_envs
            is no whole number from 1. Or the environment has no such setting, or not with that
            value.

    Example:
        >>> env = quatrain.make("quatrain/Grid-v0")
        >>> obs, info = env.reset(seed=0)
    """
    check_type("id", id, str, "the id of an environment, such as 'quatrain/Colony-v0'")
    if num_envs is not None:
        check_count("num_envs", num_envs)
    require("quatrain.make", ("gymnasium",), "gym")
    import gymnasium

    import_module("quatrain.envs.adapters")
    name = id if id.startswith(NAMESPACE) else NAMESPACE + id
    registered = sorted(each for each in gymnasium.registry if each.startswith(NAMESPACE))
    if name not in registered:
        hint = nearest(name, registered)
        names = ", ".join(registered) or "none"
        raise ConfigError(f"unknown environment {id!r}{hint}; known: {names}")
    if num_envs is None:
        return gymnasium.make(name, **settings)
    return gymnasium.make_vec(name, num_envs=num_envs, **settings)
