"""How environments move: by hand, by their law, alone and beside others."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from quatrain.envs.vector_field.config import Observation
from quatrain.envs.vector_field.kinds import FieldError
from quatrain.envs.vector_field.world import (
    EnvState,
    FieldSystem,
    World,
    check_actions,
    check_step,
    step_mean,
)
from tests.envs.vector_field.worlds import (
    LEAVING,
    SIX,
    STILL,
    gaussian,
    points,
    poisson,
    wind,
    world_of,
)
from tests.torch_numbers import seeded


def system_at(world: World, x: Tensor, age: int = 0, seed: int = 0) -> FieldSystem:
    """Returns envs of one arm."""
    state = EnvState(x, torch.full((len(x),), age))
    unseen = torch.zeros(len(x), len(world.emission.weight))
    return FieldSystem(world, state, unseen, [seeded(seed)], [seeded(seed + 1)])


@pytest.mark.parametrize("kind", ["duffing", "snowman"])
def test_a_step_is_euler_in_the_field_of_the_world_with_actions_clamped_to_the_box(kind: str):
    control = ((1.0, 0.0, 2.0), (0.5, -1.0, 0.0))
    world = world_of(kind=kind, normalise="region_rms", dt=0.05, control=control, action_bound=0.5)
    field, x, action = world.field, points(5, 2), points(5, 3, seed=2, reach=1.0)
    action[0, 0] = math.inf
    push = action.clamp(-0.5, 0.5) @ torch.tensor(control).T
    result = step_mean(world, x, action)
    torch.testing.assert_close(result, x + 0.05 * (field(x) + push))


def test_an_infinite_action_raises_an_error_that_names_its_row():
    check_actions(torch.tensor([[0.0, 5.0], [-5.0, 1.0]]))
    for value in (math.nan, -math.inf):
        message = rf"^The action of row 1 is not finite: \[0\.0, {value}\]; give finite numbers\.$"
        with pytest.raises(ValueError, match=message):
            check_actions(torch.tensor([[0.0, 1.0], [0.0, value], [0.0, math.nan]]))


@pytest.mark.parametrize("parts", [1, 8])
def test_process_noise_is_a_variance_per_unit_of_time(parts: int):
    """The summed noise of finer steps has the distribution of one step's noise."""
    world = world_of(kind="linear", matrix=STILL, dt=0.4 / parts)
    x = still = torch.zeros(20000, 2)
    for seed in range(parts):
        x = system_at(world, x, seed=10 + seed).step(still).final_x
    torch.testing.assert_close(x.var(0), torch.full((2,), 0.01 * 0.4), rtol=0.04, atol=0)
    assert x.mean(0).abs().max() < 0.002
    assert (x[:, 0] * x[:, 1]).mean().abs() < 5 * 0.004 / 20000**0.5


def test_envs_start_uniformly_and_are_observed_there():
    world = world_of()
    draws = system_at(world, torch.zeros(20000, 2)).draw()
    started = FieldSystem.started(world, 20000, seeded(0))
    x = started.x
    assert x.abs().max() <= 1
    assert x.mean(0).abs().max() < 0.03
    torch.testing.assert_close(x.var(0), torch.full((2,), 1 / 3), rtol=0.03, atol=0)
    assert started.state.age.eq(0).all()
    residual = started.observation - world.emission.mean(x)
    torch.testing.assert_close(residual, 0.1 * draws.start_observation, rtol=0, atol=1e-5)
    assert residual.std() == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("emission", [gaussian(), poisson()])
def test_an_env_that_leaves_the_box_is_observed_there_and_reset(emission: Observation):
    world, still = world_of(emission, **LEAVING), torch.zeros(4, 2)
    x = torch.tensor([[0.0, 1.0], [0.5, 2.5], [2.95, 0.0], [-0.5, -2.5]])
    before, draws = x.clone(), system_at(world, x, seed=5).draw()
    system = system_at(world, x, age=6, seed=5)
    stepped = system.step(still)
    noise = (0.01 * 0.1) ** 0.5 * draws.process
    torch.testing.assert_close(stepped.final_x, step_mean(world, x, still) + noise)
    assert torch.equal(x, before)
    assert stepped.truncated.tolist() == [False, True, False, True]
    left, stayed = [1, 3], [0, 2]
    assert torch.equal(system.x[left], draws.start[left])
    assert torch.equal(system.x[stayed], stepped.final_x[stayed])
    assert system.state.age.tolist() == [7, 0, 7, 0]
    assert torch.equal(stepped.start, system.observation)
    assert torch.equal(stepped.start[stayed], stepped.observation[stayed])
    assert (stepped.start[left] != stepped.observation[left]).any(1).all()
    if emission.noise == "gaussian":
        mean = world.emission.mean
        expected = mean(stepped.final_x) + 0.1 * draws.observation
        torch.testing.assert_close(stepped.observation, expected)
        first = mean(draws.start) + 0.1 * draws.start_observation
        torch.testing.assert_close(stepped.start[left], first[left])


def test_an_episode_ends_after_its_transitions():
    system = FieldSystem.started(world_of(episode_transitions=3), 2, seeded(0))
    truncated = [system.step(torch.zeros(2, 2)).truncated.tolist() for _ in range(7)]
    assert truncated == [[False] * 2, [False] * 2, [True] * 2] * 2 + [[False] * 2]


def test_a_dt_that_makes_paths_leave_the_box_raises():
    """A fast fall along x2: at dt 0.1 each step overshoots by half more, from all starts but those
    with x2 = 0.
    """
    falling = {"kind": "linear", "matrix": ((-0.5, 0.0), (0.0, -25.0))}
    message = (
        "^dt 0.1 is too large for field 'linear': an undriven path left the box from 95 of 100 "
        "starts; lower active_dynamics.env.dt.$"
    )
    with pytest.raises(FieldError, match=message):
        check_step(world_of(**falling))
    check_step(world_of(**falling, dt=0.05))
    with pytest.raises(FieldError, match="from 100 of 100 starts"):
        check_step(world_of(dt=1000.0))


def test_the_default_dt_suits_all_fields_and_those_whose_orbits_leave_the_box():
    for kind in SIX:
        check_step(world_of(kind=kind, normalise="region_rms"))
    blowing = wind([np.linspace(-2, 2, 5)] * 2, np.ones((5, 5, 2)))
    check_step(world_of(kind="table", table_file=blowing))
    growing = ((0.5, 0.0), (0.0, 0.5))
    check_step(world_of(kind="linear", matrix=growing, escape_radius=1.6))
