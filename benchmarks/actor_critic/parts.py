"""the proposal's items -> rows: the leftmost cells, the reward of a step, entropy, advantages"""

from functools import partial

import numpy as np
import torch
from scipy.signal import lfilter
from torch import Generator, Tensor
from torch.distributions import Beta, Normal

from benchmarks.harness import Goal, Row
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.reference.colony import GOAL_WEIGHTS
from benchmarks.torch_rows import check_same, measured_row
from quatrain.envs.colony.dynamics import select_leftmost
from quatrain.models.actor_critic.ppo.policy import beta_entropy
from quatrain.replay.rollouts.gae import Trace, advantages

SEED = 0
SIZES = (20, 100, 512)
COLONIES = 64
SAMPLES = 100
STATES, NUMBERS = 256, 5
MANY = {"ours": COLONIES, "limit": COLONIES}
ALONE = "the batch: 1 colony"
DISCOUNT, LAMBDA = 0.97, 0.95
MEAN_LENGTH = 60
"""Steps of an episode in a lane of many."""
SHAPES: dict[str, tuple[int, int]] = {
    "T=200": (200, 1),
    "T=1000": (1000, 1),
    "T=10000": (10_000, 1),
    "64 episodes": (39_656, 1),
    "[16, 128]": (16, 128),
    "[1000, 64]": (1000, 64),
    "[128, 1024]": (128, 1024),
}
"""Steps and lanes; the first three are one episode that has not ended."""
GOALS = {"T=1000": Goal(100, "seed's way")}


def rows(rounds: int) -> list[Row]:
    """Measures ours for many colonies, counted by colony."""
    row = partial(measured_row, "us/call", rounds)
    result = [*(leftmost_row(row, size) for size in SIZES), reward_row(row), entropy_row(row)]
    return result + [advantage_row(row, name) for name in SHAPES if name.startswith("T=")]


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


def advantage_row(row: partial[Row], name: str) -> Row:
    """Measures one length of an episode that is still running at its end."""
    trace = trace_of(name)
    columns = (column[:, 0] for column in (trace.rewards, trace.values, trace.next_values))
    episode = reference.Episode(*columns)
    settings = (DISCOUNT, LAMBDA)
    works = {
        "before": partial(reference.gae_before, episode, *settings),
        "seed_way": partial(reference.gae_seed, episode, *settings),
        "ours": partial(advantages, trace, *settings, "auto"),
        "without": partial(advantages, trace, *settings, "loop"),
    }
    ours = [column[:, 0] for column in works["ours"]()]
    check_same(f"advantages, {name}", ours, list(works["before"]()), atol=1e-3)
    backwards = np.ascontiguousarray(trace.rewards.numpy()[::-1])
    recurrence = np.ones(1, np.float32), np.array([1, -DISCOUNT * LAMBDA], np.float32)
    works["limit"] = partial(lfilter, *recurrence, backwards, axis=0)
    return row(
        f"advantages, {name}; limit: the recurrence alone, in C",
        works,
        "the filter: a loop over steps",
        alike=("before", "seed_way"),
        goal=GOALS.get(name),
        claims=("colony-4",),
    )


def trace_of(name: str) -> Trace:
    """Draws random rewards and values; the next value is that of the next row, as in a rollout."""
    generator = torch.Generator().manual_seed(SEED)
    steps, lanes = SHAPES[name]
    rewards = torch.randn(steps, lanes, generator=generator)
    values = torch.randn(steps + 1, lanes, generator=generator)
    ended = torch.zeros(steps, lanes, dtype=torch.bool)
    if name == "64 episodes":
        ended[torch.randperm(steps - 1, generator=generator)[:63]] = True
        ended[-1] = True
    elif lanes > 1:
        ended = torch.rand(steps, lanes, generator=generator) < 1 / MEAN_LENGTH
    return Trace(rewards, values[:-1].clone(), values[1:].clone(), ended, torch.zeros_like(ended))
