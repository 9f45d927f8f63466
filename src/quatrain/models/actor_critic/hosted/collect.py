"""config, seed -> the scale of observations, and the returns of policies without learning"""

from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64, Shaped

from quatrain.envs.host.envs import HostEnvs, check_interface
from quatrain.envs.host.episodes import Act, play_episodes
from quatrain.envs.host.spaces import Interface, SavedInterface, draw_actions
from quatrain.errors import DataError, DatasetMismatch
from quatrain.models.actor_critic.hosted.config import HostedActorCriticConfig

# Environments that step together to collect.
NUM_ENVS = 8
# Questions of an example request.
EXAMPLES = 3


class Search(NamedTuple):
    """Holds constant actions with the mean return of each."""

    actions: Shaped[np.ndarray, "point *action"]
    returns: Float64[np.ndarray, " point"]


class Training(NamedTuple):
    """Holds what training reads: mean and variance of observations, and the seed of the episodes to
    evaluate on.
    """

    obs_mean: Float64[np.ndarray, " obs"]
    obs_variance: Float64[np.ndarray, " obs"]
    search: Search
    validation_seed: Int64[np.ndarray, ""]


class HeldOut(NamedTuple):
    """Holds the seed of episodes that are never trained on, what the first of them begin with, and
    returns of reference policies.
    """

    seed: Int64[np.ndarray, ""]
    random: Float64[np.ndarray, " episode"]
    constant: Float64[np.ndarray, " episode"]
    constant_action: Shaped[np.ndarray, "*action"]
    first_obs: Float32[np.ndarray, "example obs"]


class Dataset(NamedTuple):
    """Holds what training and evaluation read, and the sizes of the environment."""

    train: Training
    held_out: HeldOut
    interface: SavedInterface


def dataset_type(config: HostedActorCriticConfig) -> type[Dataset]:
    return Dataset


def collect(config: HostedActorCriticConfig, seed: int) -> Dataset:
    """Measures observations under a random policy, and scores reference policies, from independent
    random numbers.

    Raises:
        DataError: the environment cannot be made, or has actions or observations that cannot be
            used.
    """
    purposes = np.random.SeedSequence(seed).spawn(6)
    seeds = [int(purpose.generate_state(1)[0]) for purpose in purposes]
    rng, search_rng, reference_rng = map(np.random.default_rng, purposes[:3])
    with closing(HostEnvs(config.env, NUM_ENVS, seeds[3])) as envs:
        space = checked(config, envs.interface)
        mean, variance = _measure(config, envs, random_policy(space, rng))
    search = _search(config, seeds[4], constant_candidates(config, space, search_rng))
    best = np.asarray(search.actions[search.returns.argmax()])
    # Held-out episodes differ from those of the search by their own entropy.
    held_out_seed = seeds[5]
    validation_seed = int(purposes[5].spawn(1)[0].generate_state(1)[0])
    with closing(HostEnvs(config.env, EXAMPLES, held_out_seed)) as envs:
        first_obs = envs.obs[:, 0]

    def held_out(act: Act) -> Float64[np.ndarray, " episode"]:
        return mean_returns(config, config.collect.held_out_episodes, held_out_seed, act)

    return Dataset(
        Training(mean, variance, search, np.array(validation_seed)),
        HeldOut(
            seed=np.array(held_out_seed),
            random=held_out(random_policy(space, reference_rng)),
            constant=held_out(constant_policy(best)),
            constant_action=best,
            first_obs=first_obs,
        ),
        interface=space.saved,
    )


def checked(config: HostedActorCriticConfig, space: Interface) -> Interface:
    """Returns the sizes of observations and actions.

    Raises:
        DataError: names what cannot be learnt.
    """
    for place, (low, high) in enumerate(zip(space.action_low, space.action_high, strict=True)):
        if not low < high:
            raise DataError(
                f"env {config.env.name}: number {place} of the action is between {low:g} and "
                f"{high:g}; wrap the environment so that an action has only numbers to choose"
            )
    return space


def mean_returns(
    config: HostedActorCriticConfig, episodes: int, seed: int, act: Act
) -> Float64[np.ndarray, " episode"]:
    """Returns the undiscounted return of each episode that begins as the seed says."""
    return play_episodes(config.env, episodes, seed, act).returns[:, 0]


# Policies without learning.


def random_policy(space: Interface, rng: np.random.Generator) -> Act:

    def act(obs: np.ndarray) -> np.ndarray:
        return draw_actions(space, rng, obs.shape[:2])

    return act


def constant_policy(action: Shaped[np.ndarray, "*action"]) -> Act:

    def act(obs: np.ndarray) -> np.ndarray:
        return np.broadcast_to(action, obs.shape[:2] + action.shape)

    return act


def constant_candidates(
    config: HostedActorCriticConfig, space: Interface, rng: np.random.Generator
) -> Shaped[np.ndarray, "point *action"]:
    """Returns all indices if there are no more than wanted, else a draw; of vectors the middle and
    a draw.
    """
    count = config.collect.constant_search
    if space.action_count:
        return np.sort(rng.permutation(space.action_count)[:count])
    middle = (np.array(space.action_low) + np.array(space.action_high)) / 2
    drawn = draw_actions(space, rng, (count - 1,))
    return np.concatenate([middle[None].astype(space.action_dtype), drawn])


def _measure(
    config: HostedActorCriticConfig, envs: HostEnvs, act: Act
) -> tuple[Float[np.ndarray, " obs"], Float[np.ndarray, " obs"]]:
    steps = -(-config.collect.transitions // NUM_ENVS)
    observed = np.concatenate([envs.step(act(envs.obs)).obs[:, 0] for _ in range(steps)])
    wide = observed.astype(np.float64)
    return wide.mean(0), wide.var(0)


def _search(
    config: HostedActorCriticConfig, seed: int, actions: Shaped[np.ndarray, "point *action"]
) -> Search:
    episodes = config.collect.search_episodes
    policies = [constant_policy(np.asarray(action)) for action in actions]
    returns = [mean_returns(config, episodes, seed, policy).mean() for policy in policies]
    return Search(actions, np.array(returns))


# Checks.


def check(config: HostedActorCriticConfig, dataset: Dataset) -> None:
    """Makes the environment, and checks sizes, and that numbers are finite.

    Raises:
        DatasetMismatch: this config cannot have collected the dataset.
        DataError: the environment cannot be made.
    """
    check_interface(config.env, dataset.interface)
    space = checked(config, dataset.interface.restored)
    episodes = (config.collect.held_out_episodes,)
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {
        "obs_mean": (dataset.train.obs_mean, (space.observation_size,)),
        "obs_variance": (dataset.train.obs_variance, (space.observation_size,)),
        "random returns": (dataset.held_out.random, episodes),
        "constant returns": (dataset.held_out.constant, episodes),
        "constant_action": (dataset.held_out.constant_action, space.action_shape),
    }
    for name, (array, shape) in expected.items():
        if array.shape != shape:
            raise DatasetMismatch(
                f"actor_critic: {name} has the shape {array.shape}, not {shape}: the dataset was "
                "collected under another config; collect it again"
            )
        if not np.isfinite(array).all():
            raise DatasetMismatch(f"actor_critic: {name} is not finite; collect the dataset again")
