"""colonies, an actor -> a rollout, and what happened to the episodes that ended in it."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from quatrain.envs.colony.dynamics import Colonies
from quatrain.envs.colony.episodes import select
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES, REASONS
from quatrain.envs.colony.world import StepResult, start, step
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo.acting import Actor, see
from quatrain.models.actor_critic.ppo.team import ALONE, Team
from quatrain.replay.rollouts import buffer
from quatrain.replay.rollouts.buffer import Rollout, Sizes, Step

RETURN, LENGTH = range(2)
"""Places of what is told of an ended episode; then come its reasons, then its components."""


class Player(NamedTuple):
    """What changes while playing.

    components: sums of the running episodes. ended: means over the episodes that ended in the last rollout in which
    any did: return, length, share of each reason, sum of each component.
    """

    colonies: Colonies
    components: Float[Tensor, "colony component"]
    ended: Float[Tensor, " told"]
    environment: Generator
    policy: Generator


class Played(NamedTuple):
    """A player after a rollout; how many episodes ended in it, and how many cells the colonies had on average."""

    player: Player
    episodes: Int64[Tensor, ""]
    nodes: Float[Tensor, ""]


def first_player(actor: Actor, colonies: int, environment: Generator, policy: Generator) -> Player:
    """New colonies."""
    components = len(actor.world.rules.reward)
    return Player(
        colonies=start(actor.world, colonies, environment),
        components=torch.zeros(colonies, components),
        ended=torch.zeros(2 + len(REASONS) + components),
        environment=environment,
        policy=policy,
    )


def empty_rollout(config: ActorCriticConfig, colonies: int) -> Rollout:
    """Memory for one iteration of so many colonies."""
    env, components = config.env, len(config.env.reward.weighted)
    return buffer.allocate(
        Sizes(
            horizon=config.train.horizon,
            lanes=colonies,
            cells=env.max_nodes,
            node_features=NODE_FEATURES[env.features],
            graph_features=GRAPH_FEATURES[env.features],
            actions=len(env.action.active_params),
            components=components,
            values=() if config.network.value_heads == "total" else (components,),
        )
    )


@torch.no_grad()
def play(actor: Actor, player: Player, rollout: Rollout, team: Team = ALONE) -> Played:
    """`horizon` steps of all colonies, written into the rollout; episodes that ran out of time are bootstrapped.

    What is told of episodes is of those of the whole team.
    """
    colonies, running = player.colonies, player.components
    lasts: list[Colonies] = []
    ended, cells = torch.zeros(1 + len(player.ended)), torch.zeros(())
    for time in range(len(rollout.n)):
        graphs = see(actor, colonies)
        output = actor.forward(graphs)
        chosen = actor.policy.distribution(output.raw)
        z = actor.policy.sample(chosen, player.policy)
        stepped = step(actor.world, colonies, actor.policy.action(z), player.environment)
        log_prob, paid = actor.policy.log_prob(chosen, z), stepped.components
        flags = (stepped.terminated, stepped.truncated)
        buffer.write(rollout, time, Step(graphs, z, log_prob, *chosen, output.value, paid, *flags))
        over = (stepped.terminated | stepped.truncated)[:, None]
        ended += _told(actor, stepped, running + paid)
        running = torch.where(over, 0.0, running + paid)
        cells += colonies.n.float().mean()
        lasts.append(stepped.final)
        colonies = stepped.colonies
    buffer.close(
        rollout, actor.forward(see(actor, colonies)).value, _final_values(actor, rollout, lasts)
    )
    ended = team.summed(ended)
    means = torch.where(ended[0] > 0, ended[1:] / ended[0].clamp(min=1), player.ended)
    after = player._replace(colonies=colonies, components=running, ended=means)
    return Played(after, ended[0].long(), cells / len(rollout.n))


def _told(actor: Actor, stepped: StepResult, components: Tensor) -> Float[Tensor, " told"]:
    """Sums over the episodes that ended with this step: their number, and what `Player.ended` has means of."""
    over = (stepped.terminated | stepped.truncated).float()
    reasons = torch.nn.functional.one_hot(stepped.reason, len(REASONS))
    one = torch.ones_like(over)
    columns = [
        one[:, None],
        (components @ actor.world.weights)[:, None],
        stepped.final.t[:, None],
        reasons,
        components,
    ]
    return over @ torch.cat([column.float() for column in columns], 1)


def _final_values(
    actor: Actor, rollout: Rollout, lasts: list[Colonies]
) -> Float[Tensor, "truncated *values"]:
    """Values of the colonies whose time was up, in the order of `rollout.truncated.nonzero()`."""
    cut = rollout.truncated.cpu()
    ends = [
        select(last, rows.nonzero()[:, 0].to(last.n.device))
        for last, rows in zip(lasts, cut, strict=True)
    ]
    colonies = Colonies(*map(torch.cat, zip(*ends, strict=True)))
    if not len(colonies.n):
        return rollout.value.new_zeros(0, *rollout.value.shape[2:])
    return actor.plain(see(actor, colonies)).value
