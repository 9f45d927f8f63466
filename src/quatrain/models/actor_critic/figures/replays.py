"""state, colonies -> episodes to draw: of the learned policy, the best constant action, and the
controller.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes

from quatrain.envs.colony.dynamics import ROUNDING, make_world
from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.policies import constant_policy, feedback_policy, with_fixed_parameters
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures.training import format_number
from quatrain.models.actor_critic.ppo.learner import State
from quatrain.models.actor_critic.scores.colony import Outcome, run_episodes, run_policy
from quatrain.models.actor_critic.worlds.colony_data import InitialColonies, References
from quatrain.plots import BLACK, BLUE, GREY, RED, EndLabel

COLORS = {"learned": RED, "constant": BLACK, "feedback": BLUE, "random": GREY}
NAMES = {
    "learned": "learned",
    "constant": "best constant",
    "feedback": "controller",
    "random": "random",
}
SYMBOLS = {"delete_ratio": "r", "gamma": "γ", "alpha": "α", "noise": "ν", "theta": "θ"}
# What each number of an action is, with its unit.
WORDS = {
    "delete_ratio": "share of cells deleted",
    "gamma": "throw where it is stiff, px",
    "alpha": "stiffness that halves it",
    "noise": "added throw, px",
    "theta": "direction of throw, rad",
}


class Replays(NamedTuple):
    """Holds one episode of each colony under each policy; of the learned policy for each seed."""

    plates: Plates
    initial: InitialColonies
    learned: list[Outcome]
    constant: Outcome
    feedback: Outcome

    def outcomes(self, name: str) -> list[Outcome]:
        return self.learned if name == "learned" else [getattr(self, name)]


class Steps(NamedTuple):
    """Holds actions with the states before them, over all steps of all colonies.

    n: number of cells. y, stiffness: at the centroid.
    """

    n: Float[np.ndarray, " step"]
    y: Float[np.ndarray, " step"]
    stiffness: Float[np.ndarray, " step"]
    action: Float[np.ndarray, "step 5"]

    def column(self, name: str) -> Float[np.ndarray, " step"]:
        return self.action[:, PARAMETERS.index(name)]


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


def sizes(initial: InitialColonies, outcome: Outcome) -> Float[np.ndarray, "time colony"]:
    """Returns the number of cells before the first step and after each step."""
    return np.concatenate([initial.n[None].astype(float), outcome.n])


def centroids(initial: InitialColonies, outcome: Outcome) -> Float[np.ndarray, "time colony 2"]:
    first = initial.pos.sum(1, dtype=np.float64) / initial.n[:, None]
    return np.concatenate([first[None], outcome.centroid])


def steps_of(plates: Plates, initial: InitialColonies, outcome: Outcome) -> Steps:
    """Returns each action with the state before it."""
    running = np.isfinite(outcome.action[..., 0])
    _, colony = running.nonzero()
    x, y = centroids(initial, outcome)[:-1][running].T
    pixel = np.clip(x, 0, plates.intensity.shape[1] - 1).astype(int)
    return Steps(
        n=sizes(initial, outcome)[:-1][running],
        y=y,
        stiffness=plates.intensity[initial.substrate[colony], pixel].astype(float),
        action=outcome.action[running],
    )


def next_size(steps: Steps) -> Float[np.ndarray, " step"]:
    """Returns the number of cells after each step, n' = 2(n − ⌊r n⌋), overflows included."""
    return 2 * (steps.n - np.floor(steps.column("delete_ratio") * steps.n + ROUNDING))


def throw(steps: Steps) -> Float[np.ndarray, " step"]:
    """Returns the distance between a cell at the centroid and its child, h = γ / (1 + (α/I)²) + ν,
    in pixels.
    """
    softness = 1 + (steps.column("alpha") / steps.stiffness) ** 2
    return steps.column("gamma") / softness + steps.column("noise")


def mean_returns(outcomes: list[Outcome]) -> Float[np.ndarray, " colony"]:
    return np.mean([outcome.returns for outcome in outcomes], axis=0)


def median_colony(outcome: Outcome) -> int:
    order = outcome.returns.argsort(kind="stable")
    return int(order[len(order) // 2])


def draw_levels(axes: Axes, levels: Mapping[str, float]) -> list[EndLabel]:
    """Draws the return of each policy as a dashed line; returns the labels of these lines."""
    for name, level in levels.items():
        axes.axhline(level, color=COLORS[name], linestyle="--", linewidth=1.2)
    return [
        EndLabel(level, f"{NAMES[name]} {format_number(level)}", COLORS[name])
        for name, level in levels.items()
    ]
