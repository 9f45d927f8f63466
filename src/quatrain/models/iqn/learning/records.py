"""records of the cycles of a compiled chunk -> metrics by name, or an error if learning diverged"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from quatrain.errors import DataError
from quatrain.progress import TrainingDiverged, by_seed

REMEDY = "Lower iqn.train.learning_rate or iqn.train.max_grad_norm."
# Metrics that must be finite, in the order in which they are reported.
WATCHED = ("loss", "grad_norm", "q_mean")
# Metrics with one value per cycle and seed.
COUNTS = ("epsilon", "agent_steps", "replay_valid")


class Cycle(NamedTuple):
    """Holds the record of one cycle of one seed; stacked records begin with seeds and cycles.

    update_metrics: name -> (update, agent). play_metrics: name -> (agent,). epsilon: in the last
    turn. agent_steps: since the beginning, with the prefill, without final turns. replay_valid:
    number of transitions that can be sampled.
    """

    update_metrics: dict[str, Any]
    play_metrics: dict[str, Any]
    epsilon: Any
    agent_steps: Any
    replay_valid: Any


def raise_if_diverged(cycles: Cycle, updates: int) -> None:
    """Raises for the first update after `updates` in which a watched metric is not finite.

    Raises:
        TrainingDiverged: names the update, seed, agent and value, and the keys to lower.
    """
    watched = np.stack([cycles.update_metrics[name] for name in WATCHED])
    # (name, seed, cycle, update, agent) -> (cycle, update, agent, name, seed)
    by_time = np.moveaxis(watched, (0, 1), (-2, -1))
    not_finite = np.argwhere(~np.isfinite(by_time))
    if not len(not_finite):
        return
    cycle, update, agent, name, seed = not_finite[0]
    number = updates + cycle * by_time.shape[1] + update + 1
    raise TrainingDiverged(
        f"iqn: {WATCHED[name]} of agent {agent}, seed {seed} became "
        f"{by_time[cycle, update, agent, name, seed]} "
        f"at update {number} (agent-steps {int(cycles.agent_steps[seed, cycle]):,}). {REMEDY}"
    )


def metrics(
    cycles: Cycle, greedy: Float[np.ndarray, "evaluation seed agent"] | None
) -> dict[str, np.ndarray]:
    """Returns name -> one value per cycle, with several seeds also by seed.

    `NAME` is the mean over agents, `NAME/agent` has all agents.

    Raises:
        DataError: there was nothing to learn from in a cycle.
    """
    seed, cycle = np.unravel_index(np.argmin(cycles.replay_valid), cycles.replay_valid.shape)
    if cycles.replay_valid[seed, cycle] == 0:
        raise DataError(
            f"iqn: the replay of seed {seed} holds no transition to learn from (agent-steps "
            f"{int(cycles.agent_steps[seed, cycle]):,}): each stored turn is a final observation, "
            "or lacks turns before or after it. Raise iqn.collect.turns and iqn.train.capacity."
        )
    agent_metrics = {
        name: values.mean(2, dtype=np.float64) for name, values in cycles.update_metrics.items()
    }
    columns: dict[str, Shaped[np.ndarray, "seed cycle ..."]] = {}
    for name, values in (agent_metrics | cycles.play_metrics).items():
        columns[name] = values.mean(-1)
        columns[f"{name}/agent"] = values
    columns |= {name: getattr(cycles, name) for name in COUNTS}
    if greedy is None:
        seeds, _, agents = cycles.play_metrics["episode_return"].shape
        greedy = np.zeros((0, seeds, agents))
    return by_seed(
        {
            **{name: np.swapaxes(values, 0, 1) for name, values in columns.items()},
            "greedy_return": greedy.mean(-1),
            "greedy_return/agent": greedy,
        }
    )
