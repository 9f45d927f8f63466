"""Colonies in Gymnasium's terms: every number is that of the colonies themselves. Gymnasium's
checks are in tests/envs/adapters.
"""

from typing import Any

import jax
import numpy as np
import torch

from quatrain.envs.adapters.colony import ColonySimulation
from quatrain.envs.adapters.simulation import SimulationVectorEnv
from quatrain.envs.colony.config import OVERFLOW, TIMEOUT
from quatrain.envs.colony.dynamics import make_world
from quatrain.envs.colony.features import observe
from quatrain.envs.colony.world import start, step
from tests.colonies import all_kinds, rules


def vector(num_envs: int, graph_only: bool = False, **changes: Any) -> SimulationVectorEnv:
    return SimulationVectorEnv(
        ColonySimulation(rules(**changes), all_kinds(), num_envs, graph_only)
    )


def drawn(count: int, steps: int) -> list[np.ndarray]:
    """Draws random actions."""
    low, high = np.array(rules().bounds, np.float32).T
    uniform = np.random.default_rng(0).uniform(low, high, (steps, count, 5))
    return list(uniform.astype(np.float32).clip(low, high))


def test_actions_have_the_rules_bounds_and_an_ended_colony_is_reset_in_the_same_step():
    """Everything that is returned, from the world's own functions with the same random numbers."""
    simulation = ColonySimulation(rules(max_steps=6), all_kinds(), 5)
    envs, generator = SimulationVectorEnv(simulation), torch.Generator()
    world = make_world(rules(max_steps=6), all_kinds())
    alone = ColonySimulation(rules(max_steps=6), all_kinds(), 5, graph_only=True)
    bounds = [envs.single_action_space.low, envs.single_action_space.high]
    np.testing.assert_array_equal(np.stack(bounds, 1), np.array(rules().bounds, np.float32))
    observed, _ = envs.reset(seed=7)
    for each in (simulation, alone):
        each.seed(7)
        each.begin(np.ones(5, bool))
    colonies = start(world, 5, generator.manual_seed(7))
    codes, sums, returns = set(), torch.zeros(5, 6), torch.zeros(5)
    for action in drawn(5, 25):
        observed, *result, info = envs.step(action)
        stepped = step(world, colonies, torch.tensor(action), generator)
        colonies, over = stepped.colonies, stepped.terminated | stepped.truncated
        sums, returns = sums + stepped.components, returns + stepped.reward
        flags = (stepped.reward, stepped.terminated, stepped.truncated)
        assert same([observe(world, colonies, 100)._asdict(), *flags], [observed, *result])
        reported = {
            "reason": stepped.reason,
            "n": stepped.final.n,
            "episode_return": returns,
            "episode_length": stepped.final.t,
            "components_sum": sums,
        }
        for name, values in reported.items():
            assert same([values[~over]], [info[name][~over]])
            assert not info[name][over][..., None].any() or name == "n"
        assert ("final_info" in info) == over.any()
        if over.any():
            for name, values in reported.items():
                assert same([values[over], over], [info["final_info"][name][over], over])
            assert same([over] * 2, [info["_final_obs"], info["_final_info"]])
            last = observe(world, stepped.final, 100)._asdict()
            for row, final in enumerate(info["final_obs"]):
                assert (final is None) == (not over[row])
                if final is not None:
                    assert same([{name: last[name][row] for name in final}], [final])
        alone.step(action)
        alone.begin(over.numpy())
        graph = alone.observations["graph"]
        np.testing.assert_allclose(graph, observed["graph"], rtol=1e-6)
        codes |= set(stepped.reason.tolist())
        sums, returns = sums * ~over[:, None], returns * ~over
    assert {0, OVERFLOW, TIMEOUT} <= codes


def same(tensors: list[Any], arrays: list[Any]) -> bool:
    """Returns whether values are equal, in dictionaries too, whatever their types."""
    pairs = zip(jax.tree.leaves(tensors), jax.tree.leaves(arrays), strict=True)
    return all(np.array_equal(*map(np.asarray, pair)) for pair in pairs)
