"""a learner in an environment of a user -> what it expects along an episode, and what it gets"""

from contextlib import closing
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from quatrain.models.iqn import network
from quatrain.models.iqn.config import IqnUserEnvConfig
from quatrain.models.iqn.learn import State, evaluation_params
from quatrain.models.iqn.train import host_policy
from quatrain.models.iqn.user_env import Dataset
from quatrain.plots import BLACK, RED, EndLabel, Figure, caption, label_ends, line_with_band


class Replay(NamedTuple):
    """The returns that an agent expected of its actions along an episode, and its rewards."""

    quantiles: Float[np.ndarray, "turn quantile"]
    rewards: Float[np.ndarray, " turn"]


def replay(config: IqnUserEnvConfig, state: State, dataset: Dataset) -> Replay:
    """Plays a held-out episode by the greedy policy of the first seed; returns that of the first
    agent.
    """
    params = network.pick(evaluation_params(config, state), 0)
    policy = host_policy(config, state.scale, 0, params)
    stacks, rewards = [], []
    with closing(config.world.Envs(config.env, 1, int(dataset.held_out.seed[0]))) as envs:
        envs.restart()
        ended = False
        while not ended:
            turn = envs.step(policy(envs.obs), np.ones(1, bool))
            stacks.append(policy.stacks[0, 0])
            rewards.append(turn.rewards[0, 0])
            ended = bool((turn.terminated | turn.truncated)[0])
    first = np.zeros(len(stacks), int)
    expected = network.values_by(config, params)(np.stack(stacks), first)
    turns = np.arange(len(stacks))
    quantiles = np.asarray(expected.quantiles)[turns, :, expected.action]
    return Replay(quantiles, np.array(rewards))


def draw_expectations(config: IqnUserEnvConfig, state: State, dataset: Dataset) -> Figure:
    """Draws the return that the agent's action promises at each turn, and the one that followed."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    quantiles, rewards = replay(config, state, dataset)
    turns = np.arange(len(rewards))
    expected = quantiles.mean(1)
    line_with_band(axes, turns, expected, quantiles.min(1), quantiles.max(1), color=RED)
    actual = np.zeros(len(rewards) + 1)
    for turn in reversed(turns):
        actual[turn] = rewards[turn] + config.train.loss.discount * actual[turn + 1]
    axes.plot(turns, actual[:-1], color=BLACK, linestyle="--")
    axes.set(xlabel="turn of the episode", ylabel="discounted return, reward")
    axes.grid(alpha=0.25)
    ends = [EndLabel(expected[-1], "expected", RED), EndLabel(actual[-2], "got", BLACK)]
    label_ends(axes, ends)
    caption(
        figure,
        f"The first agent in a held-out episode of {config.env.name}. Band: from the lowest to the "
        f"highest of {config.train.acting.quantiles} quantiles. Dashed: the rewards that followed; "
        "a time limit cuts them off, which no agent expects.",
    )
    return figure
