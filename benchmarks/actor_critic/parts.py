"""rows about the proposal's first three items: selection of the leftmost cells, the reward of a
step, entropy.
"""

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Beta, Normal

from benchmarks.harness import race
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.reference.colony_rewards import GOAL_WEIGHTS
from benchmarks.repeat import repeat
from benchmarks.table import NotTheSame, Point, Row, Without
from quatrain.envs.colony.dynamics import select_leftmost
from quatrain.models.actor_critic.ppo.policy import beta_entropy

UNIT = "us/call"
SEED = 0
SIZES = (20, 50, 100, 512)
COLONIES = 64
SAMPLES = 100
STATES, NUMBERS = 256, 5
TIES = 2000


def rows(rounds: int) -> list[Row]:
    return [*selection_rows(rounds), *reward_rows(rounds), *entropy_rows(rounds)]


# Selection.


def selection_rows(rounds: int) -> list[Row]:
    """Returns rows about selecting the leftmost third of a colony; ours for many colonies."""
    refuse_other_cells()
    return [row for size in SIZES for row in _selection(size, rounds)]


def _selection(size: int, rounds: int) -> list[Row]:
    x = 600 * torch.rand(COLONIES, size, generator=torch.Generator().manual_seed(SEED))
    node, used, count = (
        x[0, :, None].expand(-1, 11).contiguous(),
        torch.ones_like(x, dtype=torch.bool),
        size // 3,
    )
    counts, host = torch.full((COLONIES,), count), x.numpy()
    times = race(
        {
            "before": repeat(lambda: reference.leftmost_before(node, count)),
            "seed": repeat(lambda: reference.leftmost_seed(node, count)),
            "many": repeat(lambda: select_leftmost(x, used, counts), COLONIES),
            "one": repeat(lambda: select_leftmost(x[:1], used[:1], counts[:1])),
            "limit": repeat(lambda: np.argpartition(host, count, 1), COLONIES),
        },
        rounds,
    )
    return [
        Row(
            f"leftmost of {size} cells, {COLONIES} colonies; "
            "limit: argpartition of all, ties left to it", UNIT,
            times["many"], times["before"], times["seed"], times["limit"],
            Without("the batch: 1 colony", times["one"]), claims=("colony-1",),
            point=Point("leftmost cells", "cells", size),
        )
    ]  # fmt: skip


def refuse_other_cells() -> None:
    """Ours must be the cells that sorting finds, with ties too; the seed's only without.

    Raises:
        NotTheSame: they are not.
    """
    rng = np.random.default_rng(SEED)
    for size in SIZES:
        for ties in (True, False):
            x = rng.integers(0, size // 4, size) if ties else rng.permutation(size)
            node, count = (
                torch.tensor(x[:, None], dtype=torch.float32),
                int(rng.integers(0, size + 1)),
            )
            expected = reference.leftmost_before(node, count)
            if own_leftmost(node, count) != expected:
                raise NotTheSame(
                    f"selection: {count} of {size} cells: ours are others than the sorted ones"
                )
            if not ties and reference.leftmost_seed(node, count) != expected:
                raise NotTheSame(
                    f"selection: {count} of {size} cells: the seed's are others than the sorted "
                    f"ones"
                )


def own_leftmost(node: Tensor, count: int) -> set[int]:
    x = node[None, :, 0]
    selected = select_leftmost(x, torch.ones_like(x, dtype=torch.bool), torch.tensor([count]))
    return set(selected[0].nonzero()[:, 0].tolist())


def ties_note() -> str:
    """Reports how often the seed's selection differs from sorting where cells share the same x."""
    rng, other = np.random.default_rng(SEED), 0
    for _ in range(TIES):
        size = int(rng.integers(10, 60))
        node = torch.tensor(rng.integers(0, size // 2, (size, 1)), dtype=torch.float32)
        count = int(rng.integers(1, size))
        other += reference.leftmost_seed(node, count) != reference.leftmost_before(node, count)
    return (
        f"argpartition alone picked other cells than sorting in {other} of {TIES} random colonies "
        f"with ties"
    )


# Reward.


def reward_rows(rounds: int) -> list[Row]:
    """Components that are there already, put together and added up; ours for many colonies, counted
    by colony.
    """
    columns = torch.randn(
        len(GOAL_WEIGHTS), COLONIES, generator=torch.Generator().manual_seed(SEED)
    )
    weights = torch.tensor(list(GOAL_WEIGHTS.values()))
    values = dict(zip(GOAL_WEIGHTS, columns[:, 0].tolist(), strict=True))
    template = {"total": 0.0} | dict.fromkeys(GOAL_WEIGHTS, 0.0)
    expected = reference.reward_before(values, GOAL_WEIGHTS)
    ours = own_reward(columns.unbind(), weights)
    if (
        reference.reward_seed(template, values, GOAL_WEIGHTS) != expected
        or abs(ours[0] - expected["total"]) > 1e-4
    ):
        raise NotTheSame("reward: the three sums are not one")
    item = columns[:, :1].unbind()
    times = race(
        {
            "before": repeat(lambda: reference.reward_before(values, GOAL_WEIGHTS)),
            "seed": repeat(lambda: reference.reward_seed(template, values, GOAL_WEIGHTS)),
            "many": repeat(lambda: own_reward(columns.unbind(), weights), COLONIES),
            "one": repeat(lambda: own_reward(item, weights)),
            "limit": repeat(lambda: columns.T @ weights, COLONIES),
        },
        rounds,
    )
    return [
        Row(
            f"reward of a step, {COLONIES} colonies; limit: the product alone", UNIT,
            times["many"], times["before"], times["seed"], times["limit"],
            Without("the batch: 1 colony", times["one"]), claims=("colony-2",),
        )
    ]  # fmt: skip


def own_reward(columns: tuple[Tensor, ...], weights: Tensor) -> Tensor:
    """Adds up components as a step of the project's colonies does."""
    return torch.stack(columns, 1) @ weights


# Entropy.


def entropy_rows(rounds: int) -> list[Row]:
    """Compares policies in many states; the proposal's is a Gaussian, whose raw entropy alone has a
    closed form.
    """
    generator = torch.Generator().manual_seed(SEED)
    first, second = 1 + 5 * torch.rand(2, STATES, NUMBERS, generator=generator)
    beta, normal = Beta(first, second), Normal(first, second)
    refuse_another_entropy(beta)
    times = race(
        {
            "before": repeat(lambda: reference.entropy_before(normal, SAMPLES)),
            "seed": repeat(lambda: reference.entropy_seed(normal)),
            "ours": repeat(lambda: beta_entropy((first, second))),
            "sampled": repeat(lambda: reference.entropy_before(beta, SAMPLES)),
        },
        rounds,
    )
    name = f"entropy in {STATES} states; before: {SAMPLES} samples of a Gaussian, ours: of a Beta"
    sampled = Without(f"the closed form: {SAMPLES} samples of the Beta", times["sampled"])
    return [
        Row(
            name,
            UNIT,
            times["ours"],
            times["before"],
            times["seed"],
            without=sampled,
            claims=("colony-3",),
        ),
        Row(f"  before: {SAMPLES} samples of the Beta", UNIT, times["ours"], times["sampled"]),
    ]


def refuse_another_entropy(beta: Beta) -> None:
    """Ours must be the mean of many samples.

    Raises:
        NotTheSame: it is not.
    """
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        draws = -beta.log_prob(beta.sample((4000,))).sum(-1)
    error = draws.std(0) / len(draws) ** 0.5
    ours = beta_entropy((beta.concentration1, beta.concentration0))
    if not bool(((ours - draws.mean(0)).abs() < 6 * error).all()):
        raise NotTheSame("entropy: ours is not what samples tell")
