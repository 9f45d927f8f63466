"""memory of a rollout -> a row: a dictionary for each graph as in the original, or one block"""

from functools import partial
from typing import Any

import torch

from benchmarks.harness import Row
from benchmarks.reference.actor_critic_parts import BEFORE, SEED, Episode, Ways
from benchmarks.reference.colony import GOAL_WEIGHTS
from benchmarks.torch_rows import measure_growth
from quatrain.replay.rollouts.buffer import Graphs, Sizes, Step, allocate, write
from quatrain.replay.rollouts.gae import Trace, advantages

STEPS, COLONIES, CELLS, SLOTS = 16, 128, 40, 100
NODE, GRAPH, NUMBERS = 8, 10, 5
DISCOUNT, LAMBDA = 0.98, 0.95


def row() -> Row:
    """Measures the memory that each side takes beyond that of the libraries."""
    name = f"memory of a rollout and its advantages, {STEPS} x {COLONIES} graphs of {CELLS} cells"
    works = {"ours": ours, "before": partial(plain, BEFORE), "seed_way": partial(plain, SEED)}
    grown = measure_growth(observed, works)
    return Row(f"{name}; ours: of {SLOTS}", "MB", **grown, claims=("colony-memory",))


def plain(ways: Ways) -> object:
    """Collects steps colony by colony, then the training samples of each colony."""
    kept: list[list[dict[str, Any]]] = [[] for _ in range(COLONIES)]
    for _ in range(STEPS):
        graphs = observed()
        for index, steps in enumerate(kept):
            columns = ("node", "graph", "parent")
            state = {name: getattr(graphs, name)[index].clone() for name in columns}
            step = {"state": state | {"ids": list(range(10**6, 10**6 + CELLS))}}
            step |= {"action": torch.randn(NUMBERS), "log_prob": torch.randn(())}
            step |= {"value": torch.randn(()), "terminated": False}
            step["reward"] = ways.reward(dict.fromkeys(GOAL_WEIGHTS, float(index)))
            steps.append(step)
    estimates = []
    for steps in kept:
        rewards = torch.tensor([step["reward"]["total"] for step in steps])
        values = torch.stack([step["value"] for step in steps])
        episode = Episode(rewards, values, torch.cat([values[1:], torch.zeros(1)]))
        estimates.append(ways.advantages(episode, DISCOUNT, LAMBDA))
    return kept, estimates


def ours() -> object:
    """Collects steps into one block."""
    components = len(GOAL_WEIGHTS)
    rollout = allocate(
        Sizes(STEPS, COLONIES, SLOTS, NODE, GRAPH, NUMBERS, (2, NUMBERS), components, ())
    )
    flags = torch.zeros(COLONIES, dtype=torch.bool)
    for time in range(STEPS):
        raw_action, dist_params = torch.randn(COLONIES, NUMBERS), torch.randn(COLONIES, 2, NUMBERS)
        log_prob, value = torch.randn(2, COLONIES)
        policy = (raw_action, log_prob, dist_params, value)
        paid = torch.randn(COLONIES, components)
        write(rollout, time, Step(observed(), *policy, paid, flags, flags))
    ends = (rollout.terminated, rollout.truncated)
    trace = Trace(rollout.components[..., 0], rollout.value, rollout.next_value, *ends)
    return rollout, advantages(trace, DISCOUNT, LAMBDA, "auto")


def observed() -> Graphs:
    """Returns random graphs of one size."""
    return Graphs(
        node=torch.randn(COLONIES, CELLS, NODE),
        graph=torch.randn(COLONIES, GRAPH),
        parent=torch.randint(-1, CELLS, (COLONIES, CELLS)),
        mask=torch.ones(COLONIES, CELLS, dtype=torch.bool),
    )
