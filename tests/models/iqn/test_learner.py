"""Nothing about running the learner changes what it learns; what it cannot learn from is named."""

from functools import lru_cache

import numpy as np
import pytest

from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.learn import State
from quatrain.models.iqn.train import from_arrays, init_state, run_chunk, to_arrays, train
from quatrain.models.iqn.treasurehunt import Dataset
from quatrain.progress import Progress, TrainingDiverged
from tests.conftest import shapes_unchecked, small

CONFIG = small("iqn", train={"evaluate_every": 80})
"""Six cycles, recorded in pairs, of which the second is evaluated."""
SINGLE = small("iqn", train={"record_every": 20, "evaluate_every": 0})
"""The same, cycle by cycle and never evaluated."""
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
def test_neither_long_records_nor_evaluations_change_a_byte():
    np.testing.assert_equal(packed(cycle_by_cycle()[-1]), packed(run()[-1]))
    for yielded, counts in ((run(), [0, 1, 0]), (cycle_by_cycle(), [0] * 6)):
        assert [len(item.metrics["greedy_return"]) for item in yielded] == counts


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


# What goes wrong.


def test_what_is_not_finite_ends_the_training_with_update_agent_seed_and_term():
    state = {name: array.copy() for name, array in to_arrays(fresh()).items()}
    state["params/hidden/bias"][:, 1] = np.nan
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
