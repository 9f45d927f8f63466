"""Arms that begin alike, choose their own actions and learn from their own observations."""

import copy
import itertools
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quatrain.envs.vector_field.world import FieldSystem, Transition, step_mean
from quatrain.models.active_dynamics import train
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.collect import collect, world_of
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeTrainer
from quatrain.models.active_dynamics.state import (
    TrainingState,
    checkpoint_steps,
    learners_of,
    planned_share,
)
from quatrain.progress import TrainingDiverged
from tests.models.active_dynamics.small_trials import (
    PLANNED,
    Run,
    advanced,
    at,
    both_families,
    configured,
    run,
)

ARMS = ("active", "random", "prbs")
WARMUP = 10
BRIEF = {"horizons": 2, "window": 4, "burn_in": 1}
"""Windows that fit into episodes of six transitions."""
SHORT: dict[str, Any] = {"episode_transitions": 6}
NARROW: dict[str, Any] = {"escape_radius": 1.1, "region_radius": 1.0}
COUNTS: dict[str, Any] = {"observation": {"kind": "loglinear", "noise": "poisson"}}


# The common start.


@pytest.mark.parametrize(("family", "episode"), [("bayes_filter", 4), ("seq_vae", None)])
def test_the_warm_up_of_all_arms_is_that_of_the_dataset(family: str, episode: int | None):
    brief = {"arms": ARMS, "record_every": WARMUP, "seq_vae": {**BRIEF, "window": 3}}
    config = configured(family, env={"episode_transitions": episode}, train=brief)
    result = run(config, yields=1)
    state, inputs = result.state, result.dataset.train
    assert int(state.replay.written) == int(state.transitions) == WARMUP
    assert inputs.truncated.any() == (episode is not None)
    columns = (inputs.next_observations, inputs.actions, inputs.truncated)
    for arm in ARMS:
        rows = learners_of(result.config, arm)
        for actual, expected in zip(state.replay[:3], columns, strict=True):
            np.testing.assert_array_equal(actual[rows, :WARMUP], expected)
        np.testing.assert_array_equal(state.path[rows, :WARMUP], inputs.next_states)
        np.testing.assert_array_equal(state.environment.x[rows], inputs.states[:, WARMUP])
    assert state.environment.age.tolist() == [WARMUP if episode is None else WARMUP % episode] * 6


def test_arms_of_a_replicate_meet_the_same_noise_wherever_their_actions_lead_them():
    env, brief = {"action_bound": 0.3}, {"arms": ARMS, "transitions": 40}
    result = run(configured(seeds=3, env=env, train=brief))
    world, state = world_of(result.config, result.dataset), result.state
    actions = state.replay.actions[:, :40]
    assert actions.abs().amax() == pytest.approx(0.3)
    assert (result.of("prbs", actions)[:, WARMUP:].abs() == 0.3).all()
    assert result.of("active", actions)[:, WARMUP:].abs().amax() > 0.27
    starts = torch.tensor(result.dataset.train.states[:, 0]).repeat(3, 1)
    before = torch.cat([starts[:, None], state.path[:, :-1]], 1)
    process = state.path - step_mean(world, before, actions)
    channels = state.replay.observations[:, :40] - world.emission.mean(state.path)
    for noise, deviation in ((process, 0.001**0.5), (channels, 0.1)):
        by_arm = noise.unflatten(0, (3, 3))
        torch.testing.assert_close(by_arm[1:], by_arm[:1].expand(2, -1, -1, -1), atol=3e-6, rtol=0)
        assert by_arm[0].std() == pytest.approx(deviation, rel=0.2)
        assert (by_arm[:, 0] - by_arm[:, 1]).abs().amax() > deviation
    assert (state.path.unflatten(0, (3, 3))[:, :, -1].std(0) > 0.03).any()


@pytest.mark.parametrize(
    ("family", "env"), [("bayes_filter", NARROW), ("bayes_filter", COUNTS), ("seq_vae", {})]
)
def test_an_arm_learns_the_same_bits_whichever_other_arms_there_are(
    family: str, env: dict[str, Any]
):
    """Although their episodes end at different times, and counts take more numbers or fewer."""
    brief = {"transitions": 18}
    arms = ("prbs", "active", "random")
    together = run(configured(family, env=env, train={"arms": arms, **brief}))
    for arm in ("random", "prbs"):
        alone = run(configured(family, env=env, train={"arms": (arm,), **brief}))
        assert torch.equal(alone.state.path, together.of(arm, together.state.path))
        for name, weights in alone.state.snapshots.items():
            expected = together.of(arm, together.state.snapshots[name][-1])
            assert torch.equal(weights[-1], expected), name
            assert weights[-1].any(), name


# A transition.


def observed_otherwise(
    monkeypatch: pytest.MonkeyPatch, after: int, moment: int, change: Callable[[Tensor], Tensor]
) -> None:
    """Lets learners that go on after some transitions observe something else in that one."""
    step, numbers = FieldSystem.step, itertools.count(after)

    def changed_step(system: FieldSystem, action: Tensor) -> Transition:
        result = step(system, action)
        y = change(result.observation) if next(numbers) == moment else result.observation
        return result._replace(observation=y)

    monkeypatch.setattr(FieldSystem, "step", changed_step)


@pytest.mark.parametrize(
    ("family", "moment", "first"),
    [("bayes_filter", 15, 16), ("bayes_filter", 16, 18), ("seq_vae", 15, 16)],
)
def test_an_observation_changes_the_next_plan_and_nothing_before(
    family: str, moment: int, first: int, monkeypatch: pytest.MonkeyPatch
):
    """Plans are made before the transitions 10, 12, 14, ..."""
    config = configured(family, train={"transitions": 20, "planner": PLANNED})
    monkeypatch.setattr(SeqVaeTrainer, "can_plan", torch.tensor(True))
    dataset = collect(config, 0)
    whole = at(config, 20, dataset)
    observed_otherwise(monkeypatch, WARMUP, moment, lambda y: y + 3)
    other = at(config, 20, dataset)
    active, random = (learners_of(config, arm) for arm in ("active", "random"))
    same = (whole.replay.actions == other.replay.actions)[active, :20].all(2).all(0)
    assert same[:first].all()
    assert not same[first]
    assert torch.equal(whole.path[random], other.path[random])


def test_a_replicate_that_cannot_plan_acts_as_its_random_pair_and_the_other_plans(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(BayesFilterLearner, "can_plan", lambda *_: torch.tensor([False, True]))
    training = at(configured(train={"transitions": 30}), 30)
    actions = training.replay.actions[:, :30]
    active, random = (actions[learners_of(training.config, arm)] for arm in ("active", "random"))
    assert torch.equal(active[0], random[0])
    assert not torch.equal(active[1, 10:], random[1, 10:])
    assert training.planned.tolist() == [0, 20, 0, 0]
    assert planned_share(training.config, training.planned) == 0.5


def test_plans_are_held_and_made_anew_when_they_are_due(monkeypatch: pytest.MonkeyPatch):
    config = configured(train={"transitions": 24, "planner": {"hold": 2, "replan_every": 4}})
    training = at(config, 0)
    moments, replan = [], train.planner.replan
    monkeypatch.setattr(
        train.planner,
        "replan",
        lambda *inputs: moments.append(training.transitions) or replan(*inputs),
    )
    advanced(training, 24)
    assert moments == [10, 14, 18, 22]
    actions = training.replay.actions[learners_of(config, "active"), WARMUP:24]
    decisions = actions.unflatten(1, (-1, 2))
    assert torch.equal(decisions[:, :, 0], decisions[:, :, 1])
    assert len(decisions[0, :, 0].unique(dim=0)) == 7


@pytest.mark.parametrize(
    ("family", "env"), [("bayes_filter", NARROW), ("bayes_filter", SHORT), ("seq_vae", SHORT)]
)
def test_a_truncated_episode_goes_on_from_a_new_beginning(
    family: str, env: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """Learners observe both: the end, and the beginning of the next episode."""
    brief = {"transitions": 40, "seq_vae": {**BRIEF, "min_windows": 25}}
    training = at(configured(family, env=env, train=brief), WARMUP)
    channels = training.world.emission
    steps, step = [], FieldSystem.step
    monkeypatch.setattr(
        FieldSystem, "step", lambda *inputs: steps.append(step(*inputs)) or steps[-1]
    )
    for moment in range(WARMUP, 40):
        advanced(training, 1)
        observed, (x, age) = steps[-1], training.system.state
        final, ended = observed.final_x, observed.truncated
        beyond = final.abs().amax(1) > training.config.env.escape_radius
        due = torch.full_like(ended, (moment + 1) % 6 == 0)
        assert torch.equal(ended, beyond if env is NARROW else due)
        assert torch.equal(ended, training.replay.truncated[:, moment])
        assert torch.equal(age == 0, ended)
        assert torch.equal((x != final).all(1), ended)
        assert (observed.observation - channels.mean(final)).abs().max() < 0.55
        assert (observed.start - channels.mean(x)).abs().max() < 0.55
        if family == "seq_vae":
            hidden = torch.stack([trainer.hidden[0] for trainer in training.learner.trainers])
            assert torch.equal(hidden.any(1), ~ended)
    assert any(transition.truncated.any() for transition in steps)


# What is kept and recorded.


def test_checkpoints_that_fall_together_are_one():
    config = configured(collect={"warmup": 10}, train={"transitions": 13, "checkpoints": 12})
    assert checkpoint_steps(config) == (10, 11, 12, 13)


@both_families
def test_a_checkpoint_keeps_the_weights_of_its_moment(family: str):
    result = run(configured(family, train={"record_every": 2, "transitions": 24, "checkpoints": 4}))
    steps = checkpoint_steps(result.config)
    assert steps == (10, 13, 18, 24)
    yields = {item.step: item for item in result.yields}
    for step in (10, 18, 24):
        then, place = Run(result.config, result.dataset, [yields[step]]), steps.index(step)
        for name, weights in then.learner.weights.items():
            assert torch.equal(result.state.snapshots[name][place], weights), name
    gained = {item.step: item.metrics["information_gained"].item() for item in result.yields}
    assert gained[8] == 0
    assert 0 < gained[10] == gained[12] < gained[14] == gained[16] < gained[18] < gained[24]


def test_truncations_and_states_outside_the_region_are_means_over_replicates_of_an_arm():
    result = run(configured(env=NARROW, train={"transitions": 40, "record_every": 40}))
    truncated, path = result.state.replay.truncated[:, :40], result.state.path
    assert truncated.any()
    metrics = result.yields[0].metrics
    for arm in result.config.train.arms:
        assert metrics[f"truncations.{arm}"].item() == result.of(arm, truncated).sum() / 2
        assert metrics[f"truncations.{arm}/seed"].sum() == result.of(arm, truncated).sum()
        outside = (result.of(arm, path).norm(dim=2) > 1).double().mean()
        assert metrics[f"outside_region.{arm}"].item() == pytest.approx(outside.item())
    by_arm = [metrics[f"truncations.{arm}"].item() for arm in result.config.train.arms]
    assert metrics["truncations"].item() == pytest.approx(np.mean(by_arm))


@pytest.mark.parametrize(("min_windows", "before"), [(9, 13), (1, WARMUP)])
def test_updates_begin_with_enough_windows_after_the_warm_up(min_windows: int, before: int):
    """Windows have six transitions: the ninth is there after the fourteenth transition."""
    windows = {**BRIEF, "window": 5, "min_windows": min_windows}
    brief = {"record_every": 2, "transitions": 18, "seq_vae": windows}
    for item in run(configured("seq_vae", train=brief)).yields:
        updates = {int(state.updates) for state in item.state.family_state[0]}
        assert updates == {max(0, item.step - before)}
        assert (item.metrics["grad_norm"].item() > 0) == (item.step > before)


# Errors.

REMEDIES = {
    "bayes_filter": "lower active_dynamics.env.dt or active_dynamics.network.rbf.prior_field_sd",
    "seq_vae": "lower active_dynamics.train.seq_vae.learning_rate or max_grad_norm",
}


@cache
def first_half(family: str, seeds: int = 3) -> Run:
    return run(configured(family, seeds=seeds, train={"record_every": 12}), yields=1)


@both_families
def test_an_observation_that_is_not_finite_ends_the_training_at_its_transition(
    family: str, monkeypatch: pytest.MonkeyPatch
):
    inputs = first_half(family)
    broken = torch.where(torch.arange(6)[:, None] == 4, torch.nan, 0.0)
    observed_otherwise(monkeypatch, 12, 17, lambda y: y + broken)
    where = "active_dynamics stopped at transition 18: innovation_nll of learner random/1"
    with pytest.raises(TrainingDiverged, match=f"^{where} is nan; {re.escape(REMEDIES[family])}$"):
        next(train.train(inputs.config, inputs.dataset, 0, inputs.state))


BREAKS: dict[str, tuple[str, Callable[[Any], Tensor]]] = {
    "params/covariance": ("bayes_filter", lambda at: at.learner.belief.covariance[1, 5]),
    "information_gained": ("bayes_filter", lambda at: at.information[1]),
    "params/first_mean": ("seq_vae", lambda at: at.learner.trainers[1].network.first_mean),
    "family_state/ell": ("seq_vae", lambda at: at.learner.metrics["ell"][1]),
}


@pytest.mark.parametrize("part", BREAKS)
def test_what_the_last_transition_broke_is_not_yielded(part: str):
    """With as many learners as a belief has parts, one could be mistaken for the other."""
    family, broken_part = BREAKS[part]
    inputs = first_half(family, 1)
    training = TrainingState(inputs.config, inputs.dataset, copy.deepcopy(inputs.state))
    with torch.no_grad():
        broken_part(training).fill_(torch.nan)
    broken = f"active_dynamics stopped at transition 12: {part} of learner random/0 is not finite;"
    with pytest.raises(TrainingDiverged, match=f"^{re.escape(broken)}"):
        train.check_finite(training, {})
