"""what an iteration noted -> metrics by name; and the lines that say where learning broke."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.colony.rules import PARAMETERS, REASONS
from quatrain.models.actor_critic.ppo.agent import Agent
from quatrain.models.actor_critic.ppo.playing import LENGTH, RETURN, Played
from quatrain.progress import TrainingDiverged, by_seed

NOTED = (
    *("loss_policy", "loss_value", "loss_entropy", "loss", "grad_norm"),
    *("entropy", "raw_entropy", "approx_kl", "clip_fraction", "ratio_max_dev"),
)
"""Of each minibatch, in this order in one tensor; the first ones are searched for what is not finite."""
WATCHED = NOTED[:5]


class Learned(NamedTuple):
    """What the minibatches noted that were learned from, the last KL that was measured, and whether it was the end."""

    noted: Float[Tensor, "minibatch noted"]
    approx_kl: float
    stopped: bool


def metrics_of(
    agent: Agent, played: Played, learned: Learned, rates: Mapping[str, float]
) -> dict[str, float]:
    """The entry of one iteration."""
    noted = dict(zip(NOTED, learned.noted.mean(0).tolist(), strict=True))
    first = dict(zip(NOTED, learned.noted[0].tolist(), strict=True))
    noted.pop("ratio_max_dev")
    return {
        "transitions": float(agent.iterations * agent.config.train.batch),
        **_happened(agent, played),
        **noted,
        "approx_kl": learned.approx_kl,
        "ratio_first_max_dev": first["ratio_max_dev"],
        "kl_stop": float(learned.stopped),
        "updates": float(agent.updates),
        **rates,
    }


def _happened(agent: Agent, played: Played) -> dict[str, float]:
    """In the rollout; an episode's figures are means over those that ended in it or, where none did, before it."""
    rollout, (episode, reasons) = agent.rollout, (played.player.ended, 2 + len(REASONS))
    action = agent.actor.policy.action(rollout.z.flatten(0, 1))
    found = {
        "return": episode[RETURN],
        "length": episode[LENGTH],
        "episodes": played.episodes,
        "nodes_mean": played.nodes,
        **_spread_of(agent),
        **{f"reason/{name}": episode[2 + code] for code, name in enumerate(REASONS) if code},
        **{
            f"reward/{name}": episode[reasons + i]
            for i, (name, _) in enumerate(agent.actor.world.rules.reward)
        },
        **{
            f"action_mean/{name}": value
            for name, value in zip(PARAMETERS, action.mean(0), strict=True)
        },
        **{
            f"action_std/{name}": value
            for name, value in zip(PARAMETERS, action.std(0, correction=0), strict=True)
        },
    }
    values = torch.stack([value.float() for value in found.values()])
    named = dict(zip(found, values.tolist(), strict=True))
    return named | {"success": named["reason/success"]}


Entries = Sequence[Sequence[Mapping[str, float]]]
"""Of each iteration and seed."""


def over_time(of_ranks: Sequence[Entries]) -> dict[str, Float[np.ndarray, "..."]]:
    """Metrics as a yield has them: means over ranks."""
    names = of_ranks[0][0][0]
    values = {
        name: np.array([[[seed[name] for seed in own] for own in rank] for rank in of_ranks])
        for name in names
    }
    return by_seed({name: of_all.mean(0) for name, of_all in values.items()})


def _spread_of(agent: Agent) -> dict[str, Tensor]:
    """a + b of a Beta policy: how far it is concentrated."""
    beta = agent.config.network.policy == "beta"
    return {"concentration": (agent.rollout.first + agent.rollout.second).mean()} if beta else {}


def refuse_rewards(agent: Agent) -> None:
    """Raise where a reward is not finite.

    Raises:
        TrainingDiverged: names the component and the colony.
    """
    paid = agent.rollout.components
    finite = paid.isfinite().all().float()
    if float(agent.team.averaged(finite)) == 1:
        return
    if finite:
        raise TrainingDiverged("actor_critic: a reward of another rank is not finite")
    time, colony, component = (~paid.isfinite()).nonzero()[0].tolist()
    name, _ = agent.actor.world.rules.reward[component]
    raise TrainingDiverged(
        f"actor_critic: reward component {name} of colony {colony} is {paid[time, colony, component]} at iteration "
        f"{agent.iterations + 1}; lower its weight or actor_critic.env.action.bounds"
    )


def refuse_divergence(agent: Agent, noted: Float[Tensor, "minibatch noted"], updates: int) -> None:
    """Raise where something of these minibatches, the first of which follows so many updates, is not finite.

    Raises:
        TrainingDiverged: names the first thing that is not, iteration and update, and the key to lower.
    """
    for row, values in enumerate(noted[:, : len(WATCHED)].tolist()):
        broken = [
            (name, value)
            for name, value in zip(WATCHED, values, strict=True)
            if not math.isfinite(value)
        ]
        if broken:
            (name, value), update = broken[0], updates + row + 1
            raise TrainingDiverged(
                f"actor_critic: {name} is {value} at iteration {agent.iterations + 1}, transition "
                f"{(agent.iterations + 1) * agent.config.train.batch:,} (update {update:,}); lower "
                "actor_critic.train.learning_rate"
            )
