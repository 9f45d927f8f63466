"""state, colonies -> episodes to draw: of the learned policy, the best constant action, and the
controller.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from quatrain.envs.colony.dynamics import make_world
from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.policies import constant_policy, feedback_policy, with_fixed_parameters
from quatrain.models.actor_critic.colony_data import InitialColonies, References
from quatrain.models.actor_critic.colony_scores import Outcome, run_episodes, run_policy
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.train import State


class Replays(NamedTuple):
    """One episode of each colony under each policy; of the learned policy for each seed."""

    plates: Plates
    initial: InitialColonies
    learned: list[Outcome]
    constant: Outcome
    feedback: Outcome

    def returns(self, name: str) -> Float[np.ndarray, " colony"]:
        """Returns a policy's return with each colony; of several seeds their mean."""
        if name == "learned":
            return np.mean([outcome.returns for outcome in self.learned], axis=0)
        outcome: Outcome = getattr(self, name)
        return outcome.returns


def replay_policies(
    config: ActorCriticConfig,
    state: State,
    references: References,
    plates: Plates,
    initial: InitialColonies,
) -> Replays:
    """Runs the policies as in evaluation, without sampling."""
    world = make_world(config.env, plates)
    constant = torch.tensor(references.constant_action).expand(len(initial.n), 5)
    gamma = torch.tensor(references.feedback_gamma).expand(len(initial.n))
    feedback = with_fixed_parameters(
        config.env.action.fixed_params, feedback_policy(world.rules, gamma)
    )
    return Replays(
        plates=plates,
        initial=initial,
        learned=[run_policy(config, seed, plates, initial) for seed in state.seeds],
        constant=run_episodes(world, initial, constant_policy(constant)),
        feedback=run_episodes(world, initial, feedback),
    )


def median_colony(outcome: Outcome) -> int:
    order = outcome.returns.argsort(kind="stable")
    return int(order[len(order) // 2])
