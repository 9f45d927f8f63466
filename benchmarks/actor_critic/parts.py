"""the proposal's first three items -> rows: the leftmost cells, the reward of a step, entropy"""

from functools import partial

import numpy as np
import torch
from torch import Generator, Tensor
from torch.distributions import Beta, Normal

from benchmarks.harness import Row
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.reference.colony import GOAL_WEIGHTS
from benchmarks.torch_rows import check_same, measured_row
from quatrain.envs.colony.dynamics import select_leftmost
from quatrain.models.actor_critic.ppo.policy import beta_entropy

SEED = 0
SIZES = (20, 100, 512)
COLONIES = 64
SAMPLES = 100
STATES, NUMBERS = 256, 5
MANY = {"ours": COLONIES, "limit": COLONIES}
ALONE = "the batch: 1 colony"


def rows(rounds: int) -> list[Row]:
    """Measures ours for many colonies, counted by colony."""
    row = partial(measured_row, "us/call", rounds)
    return [*(leftmost_row(row, size) for size in SIZES), reward_row(row), entropy_row(row)]


def leftmost_row(row: partial[Row], size: int) -> Row:
    """Measures the selection of the leftmost third of a colony."""
    x = 600 * torch.rand(COLONIES, size, generator=Generator().manual_seed(SEED))
    node, count, host = x[0, :, None].expand(-1, 11).contiguous(), size // 3, x.numpy()
    used, counts = torch.ones_like(x, dtype=torch.bool), torch.full((COLONIES,), count)
    works = {
        "before": lambda: reference.leftmost_before(node, count),
        "seed_way": lambda: reference.leftmost_seed(node, count),
        "ours": lambda: select_leftmost(x, used, counts),
        "without": lambda: select_leftmost(x[:1], used[:1], counts[:1]),
        "limit": lambda: np.argpartition(host, count, 1),
    }
    ours = works["ours"]()[0].nonzero()[:, 0].tolist()
    for side in ("before", "seed_way"):
        check_same(f"leftmost of {size} cells: {side}", ours, sorted(works[side]()))
    name = f"leftmost of {size} cells, {COLONIES} colonies"
    name = f"{name}; limit: argpartition of all, ties left to it"
    return row(name, works, ALONE, MANY, claims=("colony-1",))


def reward_row(row: partial[Row]) -> Row:
    """Measures the sum of given components."""
    columns = torch.randn(len(GOAL_WEIGHTS), COLONIES, generator=Generator().manual_seed(SEED))
    weights = torch.tensor(list(GOAL_WEIGHTS.values()))
    values = dict(zip(GOAL_WEIGHTS, columns[:, 0].tolist(), strict=True))
    template = {"total": 0.0} | dict.fromkeys(GOAL_WEIGHTS, 0.0)
    works = {
        "before": lambda: reference.reward_before(values, GOAL_WEIGHTS),
        "seed_way": lambda: reference.reward_seed(template, values, GOAL_WEIGHTS),
        "ours": lambda: own_reward(columns, weights),
        "without": lambda: own_reward(columns[:, :1], weights),
        "limit": lambda: columns.T @ weights,
    }
    check_same("reward", works["without"](), [works["before"]()["total"]])
    name = f"reward of a step, {COLONIES} colonies; limit: the product alone"
    alike = ("before", "seed_way")
    return row(name, works, ALONE, MANY, alike, claims=("colony-2",))


def own_reward(columns: Tensor, weights: Tensor) -> Tensor:
    """Adds up components as a step of the project's colonies does."""
    return torch.stack(columns.unbind(), 1) @ weights


def entropy_row(row: partial[Row]) -> Row:
    """Measures policies in many states; the proposal's is a Gaussian, whose raw entropy alone has
    a closed form.
    """
    generator = Generator().manual_seed(SEED)
    params = tuple(1 + 5 * torch.rand(2, STATES, NUMBERS, generator=generator))
    beta, normal = Beta(*params), Normal(*params)
    check_same("entropy", beta_entropy(params), beta.entropy().sum(-1))
    works = {
        "before": lambda: reference.entropy_before(normal, SAMPLES),
        "seed_way": lambda: reference.entropy_seed(normal),
        "ours": lambda: beta_entropy(params),
        "without": lambda: reference.entropy_before(beta, SAMPLES),
    }
    name = f"entropy in {STATES} states; before: {SAMPLES} samples of a Gaussian, ours: of a Beta"
    sampled = f"the closed form: {SAMPLES} samples of the Beta"
    return row(name, works, sampled, claims=("colony-3",))
