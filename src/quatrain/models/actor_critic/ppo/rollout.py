"""colonies, an actor -> a rollout, and statistics of the episodes that ended in it."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor
from torch.nn import functional

from quatrain.envs.colony.dynamics import Colonies
from quatrain.envs.colony.episodes import select
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES, REASONS
from quatrain.envs.colony.world import StepResult, start, step
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo.acting import Actor, observe, sees_cells
from quatrain.replay.rollouts import buffer

# Places in the statistics of an episode; the shares of reasons follow, then the sums of components.
RETURN, LENGTH = range(2)


class RolloutState(NamedTuple):
    """Holds everything that changes while rollouts are collected.

    components: sums over the running episodes. episode_means: means over the episodes that ended in
    the last rollout in which any ended: return, length, share of each reason, sum of each
    component.
    """

    colonies: Colonies
    components: Float[Tensor, "colony component"]
    episode_means: Float[Tensor, " statistic"]
    environment: Generator
    policy: Generator


class RolloutResult(NamedTuple):
    """Holds the state after a rollout, the number of episodes that ended, and the mean number of
    cells.
    """

    state: RolloutState
    episodes: Int64[Tensor, ""]
    nodes: Float[Tensor, ""]


def init_rollout_state(
    actor: Actor,
    colonies: int,
    environment: Generator,
    policy: Generator,
) -> RolloutState:
    components = len(actor.world.rules.reward_weights)
    return RolloutState(
        colonies=start(actor.world, colonies, environment),
        components=torch.zeros(colonies, components),
        episode_means=torch.zeros(2 + len(REASONS) + components),
        environment=environment,
        policy=policy,
    )


def allocate_rollout(config: ActorCriticConfig, colonies: int) -> buffer.Rollout:
    env = config.env
    components = len(env.reward.weighted)
    actions = len(env.action.active_params)
    return buffer.allocate(
        buffer.Sizes(
            horizon=config.train.horizon,
            envs=colonies,
            cells=env.max_nodes if sees_cells(config) else 0,
            node_features=NODE_FEATURES[env.features],
            graph_features=GRAPH_FEATURES[env.features],
            actions=actions,
            dist_params=(2, actions),
            components=components,
            values=() if config.network.value_heads == "total" else (components,),
        )
    )


@torch.no_grad()
def collect_rollout(actor: Actor, state: RolloutState, rollout: buffer.Rollout) -> RolloutResult:
    """Runs `horizon` steps of all colonies and writes them into the rollout, in place.

    Truncated episodes get the value of their final state.
    """
    colonies = state.colonies
    components = state.components
    final_colonies: list[Colonies] = []
    ended = torch.zeros(1 + len(state.episode_means))
    cells = torch.zeros(())
    for time in range(len(rollout.n)):
        stepped = _step(actor, state, colonies, rollout, time)
        components = components + stepped.components
        over = stepped.terminated | stepped.truncated
        ended += _sum_over_ended(actor, stepped, components)
        components = torch.where(over[:, None], 0.0, components)
        cells += colonies.n.float().mean()
        final_colonies.append(stepped.final)
        colonies = stepped.colonies
    buffer.fill_next_values(
        rollout,
        actor.forward(observe(actor, colonies)).value,
        _final_values(actor, rollout, final_colonies),
    )
    episodes = ended[0]
    means = torch.where(episodes > 0, ended[1:] / episodes.clamp(min=1), state.episode_means)
    return RolloutResult(
        state=state._replace(colonies=colonies, components=components, episode_means=means),
        episodes=episodes.long(),
        nodes=cells / len(rollout.n),
    )


def _step(
    actor: Actor,
    state: RolloutState,
    colonies: Colonies,
    rollout: buffer.Rollout,
    time: int,
) -> StepResult:
    policy = actor.policy
    graphs = observe(actor, colonies)
    output = actor.forward(graphs)
    params = policy.distribution(output.raw)
    raw_action = policy.sample(params, state.policy)
    stepped = step(actor.world, colonies, policy.action(raw_action), state.environment)
    buffer.write(
        rollout,
        time,
        buffer.Step(
            graphs=graphs,
            raw_action=raw_action,
            log_prob=policy.log_prob(params, raw_action),
            dist_params=torch.stack(params, 1),
            value=output.value,
            components=stepped.components,
            terminated=stepped.terminated,
            truncated=stepped.truncated,
        ),
    )
    return stepped


def _sum_over_ended(
    actor: Actor,
    stepped: StepResult,
    components: Float[Tensor, "colony component"],
) -> Float[Tensor, " one_plus_statistic"]:
    over = (stepped.terminated | stepped.truncated).float()
    columns = [
        torch.ones_like(over)[:, None],
        (components @ actor.world.weights)[:, None],
        stepped.final.t[:, None],
        functional.one_hot(stepped.reason, len(REASONS)),
        components,
    ]
    return over @ torch.cat([column.float() for column in columns], 1)


def _final_values(
    actor: Actor,
    rollout: buffer.Rollout,
    final_colonies: list[Colonies],
) -> Float[Tensor, "truncated *values"]:
    """Returns the values of the final states of truncated episodes, as `buffer.fill_next_values`
    takes them.
    """
    truncated = [
        select(colonies, mask.nonzero()[:, 0].to(colonies.n.device))
        for colonies, mask in zip(final_colonies, rollout.truncated.cpu(), strict=True)
    ]
    colonies = Colonies(*map(torch.cat, zip(*truncated, strict=True)))
    if not len(colonies.n):
        return rollout.value.new_zeros(0, *rollout.value.shape[2:])
    return actor.eager(observe(actor, colonies)).value
