"""learner, colonies -> episodes to draw: of the policy, the best constant action and the controller, step by step."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64

from quatrain.envs.colony.dynamics import ROUNDING, make_world
from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.policies import constant_policy, feedback_policy, with_fixed_parameters
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.models.actor_critic.collect import Floors, Starts
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import SETTLED, Outcome, played
from quatrain.models.actor_critic.ppo.acting import mean_policy
from quatrain.models.actor_critic.ppo.agent import actor_of
from quatrain.models.actor_critic.train import State
from quatrain.plots import BLACK, BLUE, GREY, RED

COLORS = {"learned": RED, "constant": BLACK, "feedback": BLUE, "random": GREY}
NAMES = {
    "learned": "learned",
    "constant": "best constant",
    "feedback": "controller",
    "random": "random",
}
"""Of policies."""
SYMBOLS = {"delete_ratio": "r", "gamma": "γ", "alpha": "α", "noise": "ν", "theta": "θ"}
UNITS = {
    "delete_ratio": "share deleted",
    "gamma": "px",
    "alpha": "stiffness",
    "noise": "px",
    "theta": "rad",
}
"""Of the numbers of an action."""


class Replays(NamedTuple):
    """One episode of each colony: of the policy of each seed, of the best constant action, and of the controller."""

    learned: list[Outcome]
    constant: Outcome
    feedback: Outcome

    def of(self, name: str) -> list[Outcome]:
        """Under one policy; `learned` has one for each seed."""
        return self.learned if name == "learned" else [getattr(self, name)]


class Steps(NamedTuple):
    """What a policy did with what it saw, over all steps of all colonies: cells, height and stiffness of the middle."""

    n: Float[np.ndarray, " step"]
    y: Float[np.ndarray, " step"]
    stiffness: Float[np.ndarray, " step"]
    action: Float[np.ndarray, "step 5"]

    def column(self, name: str) -> Float[np.ndarray, " step"]:
        """One number of the actions."""
        return self.action[:, PARAMETERS.index(name)]


def replayed(
    config: ActorCriticConfig, state: State, floors: Floors, plates: Plates, starts: Starts
) -> Replays:
    """With no spread, as they are judged."""
    world, count = make_world(config.env.rules, plates), len(starts.n)
    gamma = torch.tensor(floors.feedback_gamma).expand(count)
    return Replays(
        learned=[
            played(world, starts, mean_policy(actor_of(config, world, seed)))
            for seed in state.seeds
        ],
        constant=played(
            world, starts, constant_policy(torch.tensor(floors.constant_action).expand(count, 5))
        ),
        feedback=played(
            world,
            starts,
            with_fixed_parameters(
                config.env.action.fixed_params, feedback_policy(world.rules, gamma)
            ),
        ),
    )


def sizes(starts: Starts, outcome: Outcome) -> Float[np.ndarray, "time colony"]:
    """Cells before the first step and after each."""
    return np.concatenate([starts.n[None].astype(float), outcome.n])


def centroids(starts: Starts, outcome: Outcome) -> Float[np.ndarray, "time colony 2"]:
    """Where colonies are before the first step and after each."""
    first = starts.pos.sum(1, dtype=np.float64) / starts.n[:, None]
    return np.concatenate([first[None], outcome.centroid])


def steps_of(plates: Plates, starts: Starts, outcome: Outcome) -> Steps:
    """Each action beside the state that it answered."""
    acted = np.isfinite(outcome.action[..., 0])
    _, colony = acted.nonzero()
    x, y = centroids(starts, outcome)[:-1][acted].T
    pixel = np.clip(x, 0, plates.intensity.shape[1] - 1).astype(int)
    stiffness = plates.intensity[starts.substrate[colony], pixel].astype(float)
    return Steps(sizes(starts, outcome)[:-1][acted], y, stiffness, outcome.action[acted])


def next_size(steps: Steps) -> Float[np.ndarray, " step"]:
    """Cells after each step: n' = 2(n − ⌊r n⌋), also of a colony that overflows."""
    return 2 * (steps.n - np.floor(steps.column("delete_ratio") * steps.n + ROUNDING))


def throw(steps: Steps) -> Float[np.ndarray, " step"]:
    """Pixels between a cell in the middle and its child: h = γ / (1 + (α/I)²) + ν."""
    return steps.column("gamma") / (
        1 + (steps.column("alpha") / steps.stiffness) ** 2
    ) + steps.column("noise")


def size_error(config: ActorCriticConfig, outcome: Outcome) -> float:
    """Root mean square of cells off the target, as it is judged; NaN where every episode is too short."""
    settled = outcome.n[SETTLED - 1 :] - config.env.target_nodes
    found = settled[np.isfinite(settled)]
    return float(np.sqrt(np.square(found).mean())) if len(found) else np.nan


def mean_returns(outcomes: list[Outcome]) -> Float[np.ndarray, " colony"]:
    """Of each colony, over seeds."""
    return np.mean([outcome.returns for outcome in outcomes], axis=0)


def typical(outcome: Outcome) -> int:
    """The colony whose return is the median."""
    ranked: Int64[np.ndarray, " colony"] = outcome.returns.argsort(kind="stable")
    return int(ranked[len(ranked) // 2])


def signed(value: float) -> str:
    """With its sign, two digits after the point or, of what is large, none."""
    return f"{round(value, 2) + 0.0:+.2f}" if abs(value) < 100 else f"{value:+,.0f}"


def number(value: float) -> str:
    """The same with no plus."""
    return signed(value).removeprefix("+")


def over_seeds(config: ActorCriticConfig) -> str:
    """For a caption: what bands are; nothing of a single seed."""
    return f"Bands: 95 % interval over {config.seeds} seeds." if config.seeds > 1 else ""
