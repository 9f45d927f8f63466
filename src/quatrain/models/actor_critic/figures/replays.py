"""state, colonies -> episodes to draw: of the learned policy, the best constant action and the
controller, by their numbers; of one colony as an animation
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64

from quatrain.animation import Animation, with_bar
from quatrain.envs.colony.dynamics import make_world
from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.policies import constant_policy, feedback_policy, with_fixed_parameters
from quatrain.envs.colony.world import episodes
from quatrain.envs.drawing import draw_colony
from quatrain.models.actor_critic.colony import spec_of, view_of
from quatrain.models.actor_critic.colony_data import (
    Dataset,
    InitialColonies,
    References,
    make_colonies,
)
from quatrain.models.actor_critic.colony_scores import Outcome, run_episodes, run_policy
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import load_actor
from quatrain.models.actor_critic.train import State

# Pixels of the plate that are shown around the widest colony; width of the picture by its height.
MARGIN = 10
WIDE = 2
MILLISECONDS = 140


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


# A film.


class Frame(NamedTuple):
    """A colony at one step; after an overflow only the cells that have a slot."""

    pos: Float[np.ndarray, "cell 2"]
    parent: Int64[np.ndarray, " cell"]
    new: Bool[np.ndarray, " cell"]


def capture_frames(
    config: ActorCriticConfig, state: State, dataset: Dataset, colony: int
) -> list[Frame]:
    """Returns a frame before the first step and after each step of a held-out colony."""
    held_out = dataset.held_out
    view = view_of(config, held_out.plates, state.scale[0])
    initial = InitialColonies(*(field[colony : colony + 1] for field in held_out.colonies))
    start = make_colonies(view.world.rules, initial)
    actor = load_actor(config, spec_of(config), state.best[0].params)
    played = episodes(view.world, start, view.playing(actor.act))
    frames = []
    for colonies in (start, *(moment.transition.after for moment in played)):
        columns = (colonies.pos, colonies.parent, colonies.new)
        cells = int(colonies.n[0])
        frames.append(Frame(*(column[0, :cells].numpy(force=True) for column in columns)))
    return frames


def animate(
    config: ActorCriticConfig, frames: Sequence[Frame], intensity: Float[np.ndarray, " width"]
) -> Animation:
    """Shows a colony from its first to its last step; the picture follows it over the plate."""
    rules = config.env
    centres = [(frame.pos.min(0) + frame.pos.max(0)) / 2 for frame in frames]
    reach = max(np.ptp(frame.pos, axis=0).max() for frame in frames) / 2 + MARGIN
    half = np.minimum(reach * np.array([WIDE, 1]), [rules.width / 2, rules.height / 2])
    pictures = []
    for frame, centre in zip(frames, centres, strict=True):
        x, y = np.clip(centre, half, [rules.width, rules.height] - half)
        window = (x - half[0], x + half[0], y - half[1], y + half[1])
        pictures.append(draw_colony(intensity, rules.height, rules.goal, *frame, window))
    return Animation(with_bar(np.stack(pictures)), MILLISECONDS)
