"""Nothing about running the learner changes what it learns; what it cannot learn from is named."""

from functools import lru_cache

import jax
import numpy as np
import pytest

from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.learn import State, base_keys
from quatrain.models.iqn.train import from_arrays, init_state, run_chunk, to_arrays, train
from quatrain.models.iqn.treasurehunt import Dataset
from quatrain.progress import Progress, TrainingDiverged
from tests import probes
from tests.conftest import shapes_unchecked, small

SEEDS = 3
CONFIG = small("iqn", train={"evaluate_every": 80})
"""Six cycles, recorded in pairs, of which the second is evaluated."""
SINGLE = small("iqn", train={"record_every": 20, "evaluate_every": 0})
"""The same, cycle by cycle and never evaluated."""
WORLD = make_world(CONFIG.env)
Arrays = dict[str, np.ndarray]


@lru_cache
def dataset() -> Dataset:
    with shapes_unchecked():
        return collect(CONFIG, 11)


def fresh() -> State:
    with shapes_unchecked():
        return init_state(CONFIG, dataset(), 0)


def packed(progress: Progress) -> Arrays:
    return {name: array.copy() for name, array in to_arrays(progress.state).items()}


@lru_cache
def run() -> list[Progress]:
    before = run_chunk._cache_size()
    with shapes_unchecked():
        yielded = list(train(CONFIG, dataset(), 0))
    assert run_chunk._cache_size() <= before + 1, "all chunks are one program"
    return yielded


@lru_cache
def cycle_by_cycle() -> list[Progress]:
    with shapes_unchecked():
        return list(train(SINGLE, dataset(), 0))


def alike(item: Arrays, other: Arrays) -> None:
    assert item.keys() == other.keys()
    for name in item:
        np.testing.assert_allclose(item[name], other[name], atol=1e-5, rtol=1e-4, err_msg=name)


@pytest.mark.full
def test_a_chunk_moves_nothing_between_host_and_device():
    state = fresh()
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(run_chunk(CONFIG, WORLD, 2, state))


@pytest.mark.full
def test_neither_long_records_nor_evaluations_change_a_byte():
    np.testing.assert_equal(packed(cycle_by_cycle()[-1]), packed(run()[-1]))
    for yielded, counts in ((run(), [0, 1, 0]), (cycle_by_cycle(), [0] * 6)):
        assert [len(item.metrics["greedy_return"]) for item in yielded] == counts


def test_a_finished_learner_goes_on_when_more_turns_are_wanted():
    finished = from_arrays(SINGLE, dataset(), packed(cycle_by_cycle()[-1]))
    assert list(train(SINGLE, dataset(), 0, finished)) == []
    longer = small("iqn", train={"turns": 70, "record_every": 20, "evaluate_every": 0})
    (more,) = train(longer, dataset(), 0, finished)
    assert more.step == 140


def test_epsilon_and_steps_count_the_prefill():
    # Turns of each of four worlds; two of the prefill are final, and then each eleventh.
    played = np.array([30, 40, 50, 60, 70, 80]) - 2 - np.array([0, 1, 2, 3, 4, 5])
    steps, epsilon = (
        np.concatenate([item.metrics[name] for item in run()])
        for name in ("agent_steps", "epsilon")
    )
    assert steps.tolist() == (2 * 4 * played).tolist()
    np.testing.assert_allclose(epsilon, np.maximum(1.0 - 0.98 * 4 * (played - 1) / 200, 0.02), 1e-5)


@pytest.mark.full
def test_agents_learn_the_same_side_by_side_and_in_turn():
    in_turn = small("iqn", train={"agent_parallelism": "scan", "record_every": 20})
    alike(packed(next(train(in_turn, dataset(), 0, fresh()))), packed(cycle_by_cycle()[0]))


@pytest.mark.full
def test_each_of_several_seeds_is_the_one_that_would_be_trained_alone():
    config = small("iqn", seeds=SEEDS)
    collected = collect(config, 11)
    actions = collected.train.actions
    assert not np.array_equal(actions[0], actions[1])
    together = next(train(config, collected, 7))
    kernels = np.asarray(together.state.params["hidden"]["kernel"]).reshape(SEEDS * 2, -1)
    assert len(np.unique(kernels, axis=0)) == SEEDS * 2
    keys = np.asarray(jax.random.key_data(together.state.play_state.envs.state.key))
    assert len(np.unique(keys.reshape(SEEDS * 4, -1), axis=0)) == SEEDS * 4
    second = jax.tree.map(lambda column: column[1:2], collected.train)
    state = probes.begun(CONFIG, WORLD, second, base_keys(config, 7)[1:2])
    alone = next(train(CONFIG, collected._replace(train=second), 0, state))
    alike({name: array[1:2] for name, array in packed(together).items()}, packed(alone))
    assert together.metrics["loss/agent/seed"].shape == (2, SEEDS, 2)
    of_second = together.metrics["loss/seed"][:, 1]
    np.testing.assert_allclose(of_second, alone.metrics["loss"], rtol=1e-4)


# What goes wrong.


def test_what_is_not_finite_ends_the_training_with_update_agent_seed_and_term():
    state = {name: array.copy() for name, array in to_arrays(fresh()).items()}
    state["ring/data/rewards"][:, :, 1] = np.nan
    expected = (
        r"^iqn: loss of agent 1, seed 0 became nan at update 1 \(agent-steps 224\)\. "
        r"Lower iqn\.train\.learning_rate or iqn\.train\.max_grad_norm\.$"
    )
    with pytest.raises(TrainingDiverged, match=expected):
        next(train(CONFIG, dataset(), 0, from_arrays(CONFIG, dataset(), state)))


def test_a_learner_of_other_cycles_is_refused():
    fewer = small("iqn", train={"updates_per_cycle": 40})
    with pytest.raises(ValueError, match="trained with other turns_per_cycle or updates_per_cycle"):
        next(train(fewer, dataset(), 0, run()[0].state))
