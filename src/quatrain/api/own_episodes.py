"""a result in an environment of a user -> its actions there, episodes that it plays, and a film"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from quatrain.animation import Animation
from quatrain.api.configs import check_count, check_seed
from quatrain.api.session import computing, require
from quatrain.errors import ConfigError, DataError
from quatrain.registry import load
from quatrain.seeds import derive_seed

if TYPE_CHECKING:
    from quatrain.api.results import Result


class Played(NamedTuple):
    """Holds fresh episodes: of each its return, not discounted, and its length in steps; the mean
    return, over agents too; and its 95 % interval over episodes.
    """

    returns: Float64[np.ndarray, "episode *agent"]
    lengths: Int64[np.ndarray, " episode"]
    mean: float
    low: float
    high: float


def rows_of(config: Any) -> dict[str, Any]:
    """Makes an environment, and returns what reads the observations of its agents, as in training.

    Raises:
        ConfigError: it is one in JAX, whose observations are arrays already.
        DataError: it cannot be made.
    """
    require("observations of an environment", ("gymnasium",), "gym")
    from quatrain.envs.host.envs import HostEnvs

    if config.env.kind == "jax":
        raise ConfigError(
            f"env {config.env.name} is written in JAX, whose observations only it knows; give a "
            "request of the form of example_request()"
        )
    with closing(HostEnvs(config.env, 1, seed=0)) as envs:
        return {rows.name: rows for rows in envs.agents}


def act(result: "Result", obs: Any, info: Any, answer: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Returns actions for observations of a user's environment.

    info: what came with them, if action masks do. answer: a request -> its answers.

    Raises:
        DataError: they are no observations of the environment, or the network needs earlier ones.
    """
    from gymnasium.spaces import Dict, Tuple

    from quatrain.envs.host.spaces import batch_of

    agents = result._rows
    has_several = result.config.env.kind == "pettingzoo"
    if obs is None:
        raise DataError("the observation is None; give what env.reset()[0] or env.step() returned")
    is_pair = isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], Mapping)
    if is_pair and not any(isinstance(each.spaces.observation, Tuple) for each in agents.values()):
        raise DataError(
            "these are an observation and its info, as env.reset() returns them; give the first of "
            "the two, and the second as info= where it holds action masks"
        )
    if has_several:
        if not isinstance(obs, Mapping) or not obs or not obs.keys() <= agents.keys():
            names = [*obs] if isinstance(obs, Mapping) else type(obs).__name__
            raise DataError(f"observations are of {names}; give name -> one, of {[*agents]}")
        infos = info or {}
        asked = [(name, each, infos.get(name)) for name, each in obs.items()]
        is_single = False
    else:
        ((name, rows),) = agents.items()
        if isinstance(obs, Mapping) and not isinstance(rows.spaces.observation, Dict):
            return answer(obs)  # which says what a request has
        observed, is_single = batch_of(rows.spaces.observation, obs)
        if not observed:
            raise DataError("the batch holds no observations; give one at least")
        infos = [info] if is_single else info or [None] * len(observed)
        if len(infos) != len(observed):
            raise DataError(f"info has {len(infos)} entries; give {len(observed)}, one of each")
        asked = [(name, *each) for each in zip(observed, infos, strict=True)]
    answers = answer(_request(result, asked))
    if "action" not in answers:
        return answers
    actions = [
        agents[name].to_action(action)
        for (name, *_), action in zip(asked, answers["action"], strict=True)
    ]
    if has_several:
        return dict(zip(obs, actions, strict=True))
    return actions[0] if is_single else np.stack(actions)


def _request(result: "Result", asked: Sequence[tuple[str, Any, Any]]) -> dict[str, np.ndarray]:
    """Returns what a served model is asked for observations and infos of these agents."""
    inputs = result._served.inputs
    frames = getattr(result.config.network, "frames", 1)
    if frames > 1:
        raise DataError(
            f"the network sees the last {frames} observations, and not one alone; give a request "
            "of the form of example_request()"
        )
    agents = result._rows
    rows = np.stack([agents[name].read(obs, info, has_ended=False) for name, obs, info in asked])
    shape = inputs["observations"].shape
    rows = rows[:, : math.prod(shape)]  # allo sees no mask
    request = {"observations": rows.reshape(-1, *shape)}
    if "agents" in inputs:
        request["agents"] = np.array([[*agents].index(name) for name, *_ in asked])
    return request


def evaluate(result: "Result", episodes: int, seed: int) -> Played:
    """Plays so many fresh episodes; the seed decides how they begin.

    Raises:
        ConfigError: the model does not act in an environment of a user.
        DataError: the environment cannot be made, or raised.
    """
    check_count("episodes", episodes)
    with computing(result.params, result.model):
        begin = policy_of(result)
        from quatrain.envs.host.envs import MOST_ENVS, HostEnvs, play_range
        from quatrain.envs.host.references import return_interval

        drawn = fresh_seed(result, seed)
        make_envs = getattr(result.config.world, "Envs", HostEnvs)
        with closing(make_envs(result.config.env, min(episodes, MOST_ENVS), drawn)) as envs:
            played = play_range(envs, begin, 0, episodes)
        low = high = np.nan
        if episodes > 1:
            resamples = result.config.evaluate.bootstrap_samples
            low, high = return_interval(played, drawn, resamples).values()
    returns = played.returns[:, 0] if played.returns.shape[1] == 1 else played.returns
    return Played(returns, played.lengths, float(returns.mean()), low, high)


def film(result: "Result", seed: int) -> Animation:
    """Returns an episode by the learned policy, as the environment renders it.

    Raises:
        ConfigError: the model does not act in an environment of a user that renders.
        DataError: the environment does not render arrays, cannot be made, or raised.
    """
    if getattr(result.config.env, "kind", None) == "jax":
        raise ConfigError(f"env {result.config.env.name} is written in JAX: it has no film")
    with computing(result.params, result.model):
        begin = policy_of(result)
        from quatrain.envs.host.film import film_episode

        filmed = film_episode(result.config.env, begin, fresh_seed(result, seed))
    return filmed._replace(caption=f"{result.model} in {result.config.env.name}")


def policy_of(result: "Result") -> Any:
    """Returns what begins the learned policy of the first seed.

    Raises:
        ConfigError: there is none in an environment of a user.
    """
    begin = getattr(load(result.model).evaluate, "learned_policy", None)
    if begin is None or not result.config.brings_env:
        argument = "env" if result.config.is_recorded else "seed"
        raise ConfigError(
            f"{result.model} does not act in an environment of a user here; "
            f"quatrain.evaluate(result, {argument}=...) scores it on other data, and "
            "result.films() has what it shows"
        )
    return begin(result.config, result.state, result.dataset)


def fresh_seed(result: "Result", seed: int) -> int:
    check_seed(seed)
    return derive_seed(seed, "fresh", result.model)
