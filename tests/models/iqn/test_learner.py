"""Nothing about running the learner changes what it learns, and what it cannot learn from is
named.
"""

from functools import lru_cache
from typing import Any

import jax
import numpy as np
import pytest

from quatrain.envs.treasurehunt.world import make_world
from quatrain.errors import DeviceFull
from quatrain.models.iqn import train as learning
from quatrain.models.iqn.collect import Dataset, collect
from quatrain.models.iqn.train import (
    State,
    base_keys,
    evaluation_params,
    from_arrays,
    init_in_world,
    init_state,
    run_chunk,
    to_arrays,
    train,
    train_in_world,
    update,
)
from quatrain.progress import TrainingDiverged
from tests import probes

SEEDS = 3
CONFIG = probes.hunt()
LONGER = probes.hunt(train={"turns": 40, "record_every": 8, "evaluate_every": 0})
"""Twice as many turns, four cycles to a record, never evaluated."""
WORLD = make_world(CONFIG.env.rules)


@lru_cache
def collected() -> Dataset:
    return collect(probes.hunt(seeds=SEEDS), 11)


def dataset(seed: int = 0) -> Dataset:
    """What one of three seeds collected, as if it were alone."""
    return collected()._replace(
        train=jax.tree.map(lambda column: column[seed : seed + 1], collected().train)
    )


def fresh(seed: int = 0) -> State:
    return init_in_world(
        CONFIG, WORLD, dataset(seed).train, base_keys(probes.hunt(seeds=SEEDS), 7)[seed : seed + 1]
    )


def packed(progress: Any) -> list[dict[str, np.ndarray]]:
    """Each yield's learner."""
    return [
        {name: array.copy() for name, array in to_arrays(item.state).items()} for item in progress
    ]


@lru_cache
def run() -> list[dict[str, np.ndarray]]:
    return packed(train(CONFIG, dataset(), 0, fresh()))


@lru_cache
def longer_run() -> list[dict[str, np.ndarray]]:
    return packed(train(LONGER, dataset(), 0, fresh()))


def same(item: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return item.keys() == other.keys() and all(
        np.array_equal(item[name], other[name]) for name in item
    )


def alike(item: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert item.keys() == other.keys()
    for name in item:
        np.testing.assert_allclose(item[name], other[name], atol=1e-5, rtol=1e-4, err_msg=name)


# One program.


def test_three_chunks_and_a_resumed_one_are_one_program():
    jax.block_until_ready(fresh())
    run_chunk.clear_cache()
    once = packed(train(CONFIG, dataset(), 0, fresh()))
    assert len(once) == 4
    assert run_chunk._cache_size() == 1
    saved = from_arrays(CONFIG, dataset(), once[1])
    assert same(packed(train(CONFIG, dataset(), 0, saved))[-1], once[-1])
    assert run_chunk._cache_size() == 1


def test_a_chunk_moves_nothing_between_host_and_device():
    state = fresh()
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(run_chunk(CONFIG, WORLD, 1, state))


# How it is run does not change what is learned.


def test_neither_long_records_nor_evaluations_change_a_byte():
    assert same(longer_run()[0], run()[-1])


def test_evaluations_come_when_they_are_due():
    counts = [len(item.metrics["greedy_return"]) for item in train(CONFIG, dataset(), 0, fresh())]
    assert counts == [0, 1, 0, 1]
    assert [
        len(item.metrics["greedy_return"]) for item in train(LONGER, dataset(), 0, fresh())
    ] == [
        0,
        0,
    ]


def test_repeated_updates_give_the_first_state_that_train_yields():
    state = fresh()
    for _ in range(LONGER.train.cycles_per_record):
        state, metrics = update(LONGER, dataset(), state)
    assert same(to_arrays(state), longer_run()[0])
    progress = next(train(LONGER, dataset(), 0, fresh()))
    assert metrics.keys() == progress.metrics.keys()
    np.testing.assert_array_equal(metrics["loss"][-1], progress.metrics["loss"][-1])


def test_a_finished_learner_goes_on_when_more_turns_are_wanted():
    finished = from_arrays(CONFIG, dataset(), run()[-1])
    assert packed(train(CONFIG, dataset(), 0, finished)) == []
    assert same(packed(train(LONGER, dataset(), 0, finished))[-1], longer_run()[-1])


def test_agents_learn_the_same_side_by_side_and_in_turn():
    ends = []
    for parallelism in ("vmap", "scan"):
        config = probes.hunt(train={"agent_parallelism": parallelism})
        ends.append(to_arrays(next(train_in_world(config, WORLD, fresh())).state))
    alike(*ends)


def test_each_of_several_seeds_is_the_one_that_would_be_trained_alone():
    config = probes.hunt(seeds=SEEDS)
    together = next(train(config, collected(), 7))
    alone = next(train(CONFIG, dataset(1), 0, fresh(1)))
    alike(
        {name: array[1:2] for name, array in to_arrays(together.state).items()},
        to_arrays(alone.state),
    )
    assert together.metrics["loss/seed"].shape == (1, SEEDS)
    assert together.metrics["loss/agent/seed"].shape == (1, SEEDS, 3)
    np.testing.assert_allclose(
        together.metrics["loss/seed"][:, 1], alone.metrics["loss"], rtol=1e-4
    )


def test_seeds_share_neither_weights_nor_worlds():
    state = init_state(probes.hunt(seeds=SEEDS), collected(), 7)
    kernels = np.asarray(state.params["hidden"]["kernel"]).reshape(SEEDS * 3, -1)
    assert len(np.unique(kernels, axis=0)) == SEEDS * 3
    keys = np.asarray(jax.random.key_data(state.play_state.envs.state.key)).reshape(SEEDS * 4, -1)
    assert len(np.unique(keys, axis=0)) == SEEDS * 4


def test_the_learner_that_was_given_stays_as_it_was():
    state = fresh()
    before = {name: array.copy() for name, array in to_arrays(state).items()}
    assert len(packed(train(CONFIG, dataset(), 0, state))) == 4
    assert same(to_arrays(state), before)


# What is recorded.


def test_epsilon_and_steps_count_the_prefill():
    metrics = [item.metrics for item in train(CONFIG, dataset(), 0, fresh())]
    played = np.array([25, 30, 35, 40])  # turns of each world
    assert [int(item["agent_steps"][0]) for item in metrics] == (3 * 4 * played).tolist()
    expected = np.maximum(1.0 - 0.9 * 4 * (played - 1) / 120, 0.1)
    np.testing.assert_allclose([item["epsilon"][0] for item in metrics], expected, rtol=1e-5)


def test_what_is_not_finite_ends_the_training_with_update_agent_seed_and_term():
    progress = train(CONFIG, dataset(), 0, fresh())
    next(progress)
    state = jax.tree.map(np.copy, packed([next(progress)])[0])
    assert all(np.isfinite(array).all() for array in state.values())
    state["ring/data/rewards"][:, :, 1] = np.nan
    expected = (
        r"^iqn: loss of agent 1, seed 0 became nan at update 5 \(agent-steps 420\)\. "
        r"Lower iqn\.train\.learning_rate or iqn\.train\.max_grad_norm\.$"
    )
    with pytest.raises(TrainingDiverged, match=expected):
        next(train(CONFIG, dataset(), 0, from_arrays(CONFIG, dataset(), state)))


def test_a_device_without_memory_is_told_with_the_keys_to_lower(monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")

    monkeypatch.setattr(learning, "run_chunk", full)
    with pytest.raises(
        DeviceFull,
        match=r"^iqn: the device has no memory left; the replay alone takes .* MiB, twice .*",
    ):
        next(train(CONFIG, dataset(), 0, fresh()))


def test_a_learner_of_other_cycles_is_refused():
    finished = from_arrays(CONFIG, dataset(), run()[-1])
    with pytest.raises(ValueError, match="trained with other turns_per_cycle or updates_per_cycle"):
        next(
            train(
                probes.hunt(train={"updates_per_cycle": 1, "record_every": 1, "evaluate_every": 0}),
                dataset(),
                0,
                finished,
            )
        )


@pytest.mark.parametrize("network", ["target", "online"])
def test_the_configured_network_acts_in_evaluations(network: str):
    config = probes.hunt(train={"acting": {"evaluation_network": network}})
    state = fresh()._replace(params="online", target_params="target")
    assert evaluation_params(config, state) == network
