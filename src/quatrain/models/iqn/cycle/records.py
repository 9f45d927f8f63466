"""what a compiled chunk noted of its cycles -> metrics by name; and the line that says where learning broke."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from quatrain.progress import TrainingDiverged, by_seed

REMEDY = "Lower iqn.train.learning_rate or iqn.train.max_grad_norm."
WATCHED = ("loss", "grad_norm", "q_mean")
"""In this order a cycle is searched for what is not finite."""


class Cycle(NamedTuple):
    """One cycle of one seed; stacked, leaves begin with seeds and cycles."""

    learned: dict[str, Any]
    """(update, agents) each."""
    played: dict[str, Any]
    """(agents,) each."""
    epsilon: Any
    """Of the last turn."""
    agent_steps: Any
    """Since the beginning, prefill counted."""
    replay_valid: Any
    """Transitions that can be drawn."""


def refuse_divergence(cycles: Cycle, updates: int) -> None:
    """Raise for the first update after `updates` in which something watched is not finite.

    Raises:
        TrainingDiverged: names the update, seed, agent and value, and the keys to lower.
    """
    watched = np.stack(
        [cycles.learned[name] for name in WATCHED]
    )  # (name, seed, cycle, update, agent)
    broken = np.argwhere(
        ~np.isfinite(np.moveaxis(watched, (0, 1), (-2, -1)))
    )  # (cycle, update, agent, name, seed)
    if not len(broken):
        return
    cycle, update, agent, name, seed = broken[0]
    number, value = (
        updates + cycle * watched.shape[3] + update + 1,
        watched[name, seed, cycle, update, agent],
    )
    raise TrainingDiverged(
        f"iqn: {WATCHED[name]} of agent {agent}, seed {seed} became {value} at update {number} "
        f"(agent-steps {int(cycles.agent_steps[seed, cycle]):,}). {REMEDY}"
    )


def metrics(
    cycles: Cycle, greedy: Float[np.ndarray, "evaluation seeds agents"] | None
) -> dict[str, np.ndarray]:
    """Name -> an entry per cycle, for several seeds also each by itself; `NAME/agent` for every agent of `NAME`."""
    of_agents = {
        name: values.mean(2, dtype=np.float64) for name, values in cycles.learned.items()
    } | cycles.played
    found: dict[str, Shaped[np.ndarray, "seeds cycles ..."]] = {}
    for name, values in of_agents.items():
        found |= {name: values.mean(-1), f"{name}/agent": values}
    plain = {name: getattr(cycles, name) for name in ("epsilon", "agent_steps", "replay_valid")}
    by_time = {name: np.swapaxes(values, 0, 1) for name, values in (found | plain).items()}
    agents = cycles.played["episode_return"].shape[-1]
    evaluated = np.zeros((0, len(cycles.epsilon), agents)) if greedy is None else greedy
    by_time |= {"greedy_return": evaluated.mean(-1), "greedy_return/agent": evaluated}
    return by_seed(by_time)
