"""a result in an environment of a user -> its actions there, episodes that it plays, and a film"""

from collections.abc import Callable, Mapping
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


class Spaces(NamedTuple):
    """Holds the spaces of an agent."""

    observation: Any
    action: Any


class Played(NamedTuple):
    """Holds fresh episodes: of each its return, not discounted, and its length in steps; the mean
    return, over agents too; and its 95 % interval over episodes.
    """

    returns: Float64[np.ndarray, "episode *agent"]
    lengths: Int64[np.ndarray, " episode"]
    mean: float
    low: float
    high: float


def spaces_of(config: Any) -> dict[str, Spaces]:
    """Makes an environment, and returns the spaces of its agents.

    Raises:
        DataError: it cannot be made.
    """
    require("observations of an environment", ("gymnasium",), "gym")
    from quatrain.envs.host.user_code import make

    with closing(make(config)) as env:
        return {
            agent: Spaces(env.observation_space(agent), env.action_space(agent))
            for agent in env.possible_agents
        }


def act(result: "Result", obs: Any, answer: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Returns actions for observations of a user's environment.

    answer: a request -> its answers.

    Raises:
        DataError: they are no observations of the environment, or the network needs earlier ones.
    """
    from gymnasium.spaces import Dict

    from quatrain.envs.host.spaces import to_action

    agents = list(result.spaces)
    if result.config.env.kind == "gymnasium":
        if isinstance(obs, Mapping) and not isinstance(result.spaces[agents[0]].observation, Dict):
            return answer(obs)  # which says what a request has
        observed, is_single = _batch(result.spaces[agents[0]].observation, obs)
        acting = agents * len(observed)
    else:
        observed, acting, is_single = [*obs.values()], [*obs], False
    answers = answer(_request(result, acting, observed))
    if "action" not in answers:
        return answers
    actions = [
        to_action(result.spaces[agent].action, action)
        for agent, action in zip(acting, answers["action"], strict=True)
    ]
    if result.config.env.kind != "gymnasium":
        return dict(zip(acting, actions, strict=True))
    return actions[0] if is_single else np.stack(actions)


def _batch(space: Any, obs: Any) -> tuple[list[Any], bool]:
    """Returns the observations of a batch, and whether it is a single one instead."""
    if space.shape is None:  # of parts
        is_single = isinstance(obs, Mapping | tuple)
    else:
        is_single = np.ndim(obs) == len(space.shape)
    return [obs] if is_single else [*obs], is_single


def _request(result: "Result", acting: list[str], observed: list[Any]) -> dict[str, np.ndarray]:
    """Returns what a served model is asked for these observations of these agents."""
    from quatrain.envs.host.spaces import reader

    agents = list(result.spaces)
    inputs = result._served.inputs
    frames = getattr(result.config.network, "frames", 1)
    if frames > 1:
        raise DataError(
            f"the network sees the last {frames} observations, and not one alone; give a request "
            "of the form of example_request()"
        )
    reads = {agent: reader("the observation", result.spaces[agent].observation) for agent in agents}
    rows = [reads[agent](each) for agent, each in zip(acting, observed, strict=True)]
    shape = (len(rows), *inputs["observations"].shape)
    request = {"observations": np.reshape(rows, shape)}
    if "agents" in inputs:
        request["agents"] = np.array([agents.index(agent) for agent in acting])
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
        from quatrain.envs.host.envs import play_episodes
        from quatrain.envs.host.references import return_interval

        drawn = fresh_seed(result, seed)
        played = play_episodes(result.config.env, episodes, drawn, begin)
        low = high = np.nan
        if episodes > 1:
            resamples = result.config.evaluate.bootstrap_samples
            low, high = return_interval(played, drawn, resamples).values()
    returns = played.returns[:, 0] if played.returns.shape[1] == 1 else played.returns
    return Played(returns, played.lengths, float(returns.mean()), low, high)


def film(result: "Result", seed: int) -> Animation:
    """Returns an episode by the learned policy, as the environment renders it.

    Raises:
        ConfigError: the model does not act in an environment of a user.
        DataError: the environment does not render arrays, cannot be made, or raised.
    """
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
        raise ConfigError(
            f"{result.model} does not act in an environment of a user here; "
            "quatrain.evaluate(result, seed=...) scores it on other data, and result.films() has "
            "what it shows"
        )
    return begin(result.config, result.state, result.dataset)


def fresh_seed(result: "Result", seed: int) -> int:
    check_seed(seed)
    return derive_seed(seed, "fresh", result.model)
