"""Rows of several arms: equal seeds share their randomness, and no arm depends on which others
there are.
"""

import pytest
import torch
from torch import Tensor

from quatrain.envs.vector_field.config import Observation
from quatrain.envs.vector_field.world import Draws, World, draw, reset, step
from tests.envs.vector_field.worlds import LEAVING, gaussian, points, poisson, world_of
from tests.torch_numbers import seeded


def path(
    world: World, arms: dict[str, tuple[int, int]], steps: int = 25
) -> dict[str, dict[str, Tensor]]:
    """Of each arm {name: (its seed, that of its actions)}, with 4 replicates: what it did and what
    was drawn for it.
    """
    noise, counts = ([seeded(seed + more) for seed, _ in arms.values()] for more in (0, 1000))
    draws = draw(world, 4, noise)
    state, observed, reported = *reset(world, draws, counts), []
    for number in range(steps):
        actions = [points(4, 2, seed=100 * choice + number) for _, choice in arms.values()]
        draws = draw(world, 4, noise)
        stepped = step(world, state, torch.cat(actions), draws, counts)
        state = stepped.state
        drawn = {f"drawn_{name}": leaf for name, leaf in draws._asdict().items()}
        reported.append({**stepped._asdict(), "state": state.x, **drawn, "first": observed})
    stacked = {name: torch.stack([moment[name] for moment in reported], 1) for name in reported[0]}
    return {
        arm: {name: leaf[4 * i : 4 * i + 4] for name, leaf in stacked.items()}
        for i, arm in enumerate(arms)
    }


@pytest.mark.parametrize("emission", [gaussian(), poisson()])
def test_arms_with_equal_seeds_share_starts_and_noise(emission: Observation):
    """Whatever they do, and although their episodes end at different times."""
    arms = {"active": (7, 1), "random": (7, 2), "same": (7, 1), "other": (8, 1)}
    results = path(world_of(emission, **LEAVING), arms)
    active, random, same, other = results.values()
    assert torch.equal(active["first"], random["first"])
    assert not torch.equal(active["truncated"], random["truncated"])
    for name in Draws._fields:
        assert torch.equal(active[f"drawn_{name}"], random[f"drawn_{name}"])
        assert not torch.equal(active[f"drawn_{name}"], other[f"drawn_{name}"])
    for name, leaf in active.items():
        assert torch.equal(leaf, same[name])
    if emission.noise == "poisson":
        for name in ("observation", "final_observation", "first"):
            assert torch.equal(active[name], active[name].round())
            assert active[name].max() > 1


@pytest.mark.parametrize("emission", [gaussian(), poisson()])
def test_an_arm_stays_as_it_is_when_others_are_removed(emission: Observation):
    world, arms = (
        world_of(emission, **LEAVING),
        {"active": (7, 1), "random": (7, 2), "prbs": (7, 3)},
    )
    together = path(world, arms)
    assert together["prbs"]["truncated"].any()
    for kept in (("prbs",), ("active", "prbs"), ("prbs", "random")):
        alone = path(world, {arm: arms[arm] for arm in kept})
        for arm in kept:
            for name, leaf in together[arm].items():
                # On some processors the last bits of a product hang on the number of rows.
                torch.testing.assert_close(alone[arm][name], leaf, rtol=1e-6, atol=1e-6)
