"""Arms that begin alike, ask their own questions, and learn from what they see alone, transition by
transition.
"""

import copy
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quatrain.envs.vector_field.world import EnvState, step_mean
from quatrain.errors import DatasetMismatch
from quatrain.models.active_dynamics import losses, train
from quatrain.models.active_dynamics.bayes_filter.filter import weights
from quatrain.models.active_dynamics.collect import collect, world_of
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.state import (
    State,
    StepRecord,
    TrainingState,
    checkpoint_steps,
    learners_of,
)
from quatrain.progress import TrainingDiverged
from quatrain.replay import windows
from tests.conftest import small
from tests.models.active_dynamics.small_trials import (
    FAMILIES,
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
PATIENT = {**BRIEF, "min_windows": 25}
"""No update, where episodes are short."""


def first_yield(config: ActiveDynamicsConfig) -> Run:
    """Of a run that goes no further."""
    dataset = collect(config, 0)
    return Run(config, dataset, [next(train.train(config, dataset, 0))])


# The common start.


@pytest.mark.parametrize("episode", [None, 4])
@both_families
def test_the_warm_up_of_all_arms_is_the_dataset_s(family: str, episode: int | None):
    train_part = {
        "arms": ARMS,
        "transitions": 20,
        "record_every": WARMUP,
        "seq_vae": {**BRIEF, "window": 3},
    }
    result = first_yield(configured(family, env={"episode_transitions": episode}, train=train_part))
    state, inputs, ring = result.state, result.dataset.train, result.state.replay
    assert int(ring.written) == int(state.transitions) == WARMUP
    assert inputs.truncated.any() == (episode is not None)
    for arm in ARMS:
        rows = learners_of(result.config, arm)
        for stored, column in zip(
            ring[:3], (inputs.next_observations, inputs.actions, inputs.truncated), strict=True
        ):
            np.testing.assert_array_equal(stored[rows, :WARMUP], column)
        np.testing.assert_array_equal(state.path[rows, :WARMUP], inputs.next_states)
        np.testing.assert_array_equal(state.environment.x[rows], inputs.states[:, WARMUP])
    ages = state.environment.age.tolist()
    assert ages == [WARMUP if episode is None else WARMUP % episode] * 6


def test_arms_of_a_replicate_meet_the_same_noise_wherever_they_are():
    result = run(configured(seeds=3, train={"arms": ARMS, "transitions": 40}))
    world, state = world_of(result.config, result.dataset), result.state
    after, actions = state.path, state.replay.actions[:, :40]
    before = torch.cat(
        [torch.tensor(result.dataset.train.states[:, 0]).repeat(3, 1)[:, None], after[:, :-1]], 1
    )
    assert not state.replay.truncated.any()
    moved = (after - step_mean(world, before, actions)).unflatten(0, (3, 3))
    recorded = (state.replay.observations[:, :40] - world.emission.mean(after)).unflatten(0, (3, 3))
    for noise, deviation in ((moved, 0.01**0.5 * 0.1**0.5), (recorded, 0.1)):
        torch.testing.assert_close(noise[1], noise[0], atol=3e-6, rtol=0)
        torch.testing.assert_close(noise[2], noise[0], atol=3e-6, rtol=0)
        assert noise[0].std() == pytest.approx(deviation, rel=0.2)
        assert (noise[:, 0] - noise[:, 1]).abs().amax() > deviation  # replicates do not
    apart = (after.unflatten(0, (3, 3))[:, :, -1]).std(0)
    assert (apart > 0.1).any()


def test_counts_are_drawn_of_the_same_seed_until_arms_part():
    counts = {"observation": {"kind": "loglinear", "noise": "poisson", "bias_sd": 2.0}}
    result = run(configured(env=counts, train={"arms": ("active", "off"), "transitions": 13}))
    active, off = (
        result.of(arm, result.state.replay.observations[:, :13]) for arm in ("active", "off")
    )
    assert torch.equal(active, active.round())
    assert torch.equal(active[:, :WARMUP], off[:, :WARMUP])
    assert not torch.equal(active[:, WARMUP:], off[:, WARMUP:])


@both_families
def test_what_an_arm_learns_does_not_depend_on_which_other_arms_there_are(family: str):
    """Bit for bit."""
    together = run(
        configured(family, train={"arms": ("prbs", "active", "random"), "transitions": 22})
    )
    for arm in ("random", "prbs"):
        alone = configured(family, train={"arms": (arm,), "transitions": 22})
        *_, end = train.train(alone, together.dataset, 0)
        assert torch.equal(end.state.path, together.of(arm, together.state.path))
        for name, kept in end.state.snapshots.items():
            assert torch.equal(kept[-1], together.of(arm, together.state.snapshots[name][-1])), name
            assert kept[-1].any(), name


@both_families
def test_arms_learn_from_what_they_saw_themselves(family: str):
    result = run(configured(family, train={"arms": ARMS, "transitions": 22}))
    path, (_, kept) = result.state.path, result.state.snapshots.popitem()
    for item, other in (("active", "random"), ("active", "prbs"), ("random", "prbs")):
        assert not torch.equal(result.of(item, path), result.of(other, path))
        assert not torch.equal(result.of(item, kept[-1]), result.of(other, kept[-1]))
        assert torch.equal(
            result.of(item, kept[0]), result.of(other, kept[0])
        )  # at the end of the warm-up


# What a transition is.


def told_otherwise(
    monkeypatch: pytest.MonkeyPatch, moment: int, change: Callable[[StepRecord], StepRecord]
) -> None:
    """Lets learners see something else in the transition of that number."""
    answer = train.step_environment

    def step_environment(training: TrainingState, action: Tensor) -> StepRecord:
        record = answer(training, action)
        return change(record) if training.transitions == moment else record

    monkeypatch.setattr(train, "step_environment", step_environment)


def farther(record: StepRecord) -> StepRecord:
    return record._replace(
        observed=record.observed._replace(
            observation=record.observed.observation + 3,
            reset_observation=record.observed.reset_observation + 3,
        )
    )


@pytest.mark.parametrize(("moment", "first"), [(15, 16), (16, 18)])
@both_families
def test_the_next_plan_knows_what_was_seen_last(
    family: str, moment: int, first: int, monkeypatch: pytest.MonkeyPatch
):
    """It plans before the transitions 10, 12, 14 ... What is seen after transition t is what t + 1
    begins with.
    """
    config = configured(family, train={"transitions": 20, "planner": PLANNED})
    dataset = collect(config, 0)
    whole = at(config, 20, dataset)
    told_otherwise(monkeypatch, moment, farther)
    other = at(config, 20, dataset)
    same = (
        (whole.replay.actions == other.replay.actions)[learners_of(config, "active"), :20]
        .all(2)
        .all(0)
    )
    assert same[:first].all()
    assert not same[first]
    random = learners_of(config, "random")
    assert torch.equal(whole.path[random], other.path[random])


@both_families
def test_what_is_seen_changes_beliefs_at_once_and_nothing_before(
    family: str, monkeypatch: pytest.MonkeyPatch
):
    config = configured(family, train={"arms": ("random",), "transitions": 20})
    dataset = collect(config, 0)
    whole = [means(at(config, count, dataset)) for count in (15, 16)]
    told_otherwise(monkeypatch, 15, farther)
    other = [means(at(config, count, dataset)) for count in (15, 16)]
    assert torch.equal(whole[0], other[0])
    assert (whole[1] - other[1]).abs().amin() > 1e-3


def means(training: TrainingState) -> Tensor:
    """Of the states, as each row believes."""
    rows: Any = training.learner
    if training.config.network.family == "bayes_filter":
        return rows.belief.mean[:, : training.config.env.d].clone()
    return torch.stack([worker.belief.mean for worker in rows.trainers])


def test_actions_stay_in_the_box_and_are_those_that_acted():
    bound = 0.3
    result = run(
        configured(
            env={"action_bound": bound, "process_noise": 0.0},
            train={"arms": ARMS, "transitions": 40},
        )
    )
    actions, path = result.state.replay.actions[:, :40], result.state.path
    assert actions.abs().amax() <= bound
    assert (result.of("prbs", actions)[:, WARMUP:].abs() == bound).all()
    assert result.of("active", actions)[:, WARMUP:].abs().amax() > 0.9 * bound
    world = world_of(result.config, result.dataset)
    torch.testing.assert_close(
        path[:, 1:], step_mean(world, path[:, :-1], actions[:, 1:]), atol=1e-6, rtol=0
    )


def test_plans_are_held_and_made_anew_when_they_are_due(monkeypatch: pytest.MonkeyPatch):
    built, replan = [], train.planner.replan
    monkeypatch.setattr(
        train.planner,
        "replan",
        lambda *inputs: built.append(training.transitions) or replan(*inputs),
    )
    training = at(
        configured(train={"transitions": 24, "planner": {"hold": 2, "replan_every": 4}}), 0
    )
    advanced(training, 24)
    assert built == [10, 14, 18, 22]
    actions = training.replay.actions[learners_of(training.config, "active"), WARMUP:24].unflatten(
        1, (-1, 2)
    )
    assert torch.equal(actions[:, :, 0], actions[:, :, 1])
    assert len(actions[0, :, 0].unique(dim=0)) == 7


# Where an episode ends.

SHORT: dict[str, Any] = {"episode_transitions": 6}
NARROW: dict[str, Any] = {"escape_radius": 1.1, "region_radius": 1.0}


@pytest.mark.parametrize("env", [SHORT, NARROW], ids=["out of time", "out of the box"])
@both_families
def test_a_truncated_row_goes_on_from_a_new_beginning(family: str, env: dict[str, Any]):
    training = at(configured(family, env=env, train={"transitions": 40, "seq_vae": PATIENT}), 0)
    ended = []
    for moment in range(40):
        before = training.environment.x
        advanced(training, 1)
        over = training.replay.truncated[:, moment]
        final, now = training.path[:, moment], training.environment
        beyond = final.abs().amax(1) > training.config.env.escape_radius
        assert torch.equal(
            over, beyond if env is NARROW else torch.full_like(over, (moment + 1) % 6 == 0)
        )
        assert torch.equal(now.x[~over], final[~over])
        assert (now.x[over].abs() <= 1).all()
        assert (now.x[over] != final[over]).all()
        assert (now.age[over] == 0).all()
        assert (now.age[~over] > 0).all()
        assert (
            (final - before).abs().amax() < 0.5
        ).all()  # the path is that of the state that acted
        ended.append(over)
    assert torch.stack(ended)[WARMUP:].any()


def began_elsewhere(record: StepRecord) -> StepRecord:
    observed = record.observed
    first = observed.reset_observation
    first = torch.where(observed.truncated[:, None], first.flip(1), first)
    environment = EnvState(record.environment.x, record.environment.age)
    return record._replace(
        observed=observed._replace(reset_observation=first), environment=environment
    )


def test_a_filter_learns_nothing_from_the_step_between_two_episodes(
    monkeypatch: pytest.MonkeyPatch,
):
    """What is seen of a new beginning says where the state is, and nothing about the field."""
    config = configured(env=SHORT, train={"arms": ("random",), "transitions": 30})
    dataset = collect(config, 0)
    whole = at(config, 18, dataset)
    assert whole.replay.truncated[:, 17].all()
    told_otherwise(monkeypatch, 17, began_elsewhere)
    other = at(config, 18, dataset)
    lock, changed = whole.learner.belief, other.learner.belief
    assert not torch.equal(lock.mean[:, :2], changed.mean[:, :2])
    assert torch.equal(weights(2, lock), weights(2, changed))
    assert torch.equal(lock.covariance[:, 2:, 2:], changed.covariance[:, 2:, 2:])
    assert not lock.covariance[:, :2, 2:].any()
    assert not torch.equal(
        weights(2, advanced(whole, 1).learner.belief), weights(2, advanced(other, 1).learner.belief)
    )


def test_a_network_never_sees_both_sides_of_an_end():
    config = configured("seq_vae", env=SHORT, train={"transitions": 40, "seq_vae": PATIENT})
    training, recorded = at(config, 0), 0
    for moment in range(40):
        advanced(training, 1)
        over = training.replay.truncated[:, moment]
        hidden = torch.stack([worker.hidden for worker in training.learner.trainers]).flatten(1)
        assert torch.equal(hidden.any(1), ~over)
    starts, ends = training.replay.starts, training.replay.truncated
    for row in range(config.learners):
        for start in starts.numbers[row, : starts.end[row]].tolist():
            assert not ends[row, start : start + BRIEF["window"] + BRIEF["burn_in"] - 1].any()
            recorded += 1
    assert recorded == config.learners * (
        6 * 2 + 0
    )  # two in each whole episode of six, none in the four left over
    assert int(windows.window_counts(training.replay)[0]) == 12


# What is kept and told.


@pytest.mark.parametrize(
    ("warmup", "transitions", "checkpoints", "expected"),
    [
        (10, 60, 5, (10, 16, 24, 38, 60)),
        (20, 1000, 3, (20, 141, 1000)),
        (10, 13, 12, (10, 11, 12, 13)),
        (1, 2, 2, (1, 2)),
    ],
)
def test_checkpoints_are_even_in_their_logarithm_from_the_warm_up_to_the_end(
    warmup: int, transitions: int, checkpoints: int, expected: tuple[int, ...]
):
    train_part = {"transitions": transitions, "checkpoints": checkpoints}
    assert checkpoint_steps(configured(collect={"warmup": warmup}, train=train_part)) == expected


@both_families
def test_a_checkpoint_keeps_the_weights_of_its_moment(family: str):
    result = run(configured(family, train={"record_every": 2, "transitions": 24, "checkpoints": 4}))
    steps = checkpoint_steps(result.config)
    assert steps == (10, 13, 18, 24)
    by_step = {item.step: item.state for item in result.yields}
    restored = {
        step: TrainingState.from_state(result.config, result.dataset, by_step[step])
        for step in (10, 18, 24)
    }
    for name, kept in result.state.snapshots.items():
        for step, training in restored.items():
            assert torch.equal(kept[steps.index(step)], training.learner.weights[name]), name
        assert not by_step[16].snapshots[name][2:].any()
        assert torch.equal(by_step[16].snapshots[name][:2], kept[:2])
    gained = [item.metrics["information_gained"].item() for item in result.yields]
    lines = dict(zip(by_step, gained, strict=True))
    assert lines[8] == 0
    assert 0 < lines[10] == lines[12] < lines[14] == lines[16] < lines[18] == lines[22] < lines[24]


@pytest.mark.parametrize("seeds", [1, 2])
@both_families
def test_each_yield_tells_the_same_of_each_arm_and_of_all(family: str, seeds: int):
    result = run(
        configured(family, seeds=seeds, train={"arms": ARMS, "record_every": 7, "transitions": 16})
    )
    common = {"innovation_nll", "field_sd", "monitor/field_nrmse", "information_gained"}
    common |= {"outside_region", "truncations"}
    local = (
        {*losses.TERMS["seq_vae"], "elbo_exact", "beta", "grad_norm", "loss"}
        if family == "seq_vae"
        else set()
    )
    names = {f"{name}{of}" for name in common | local for of in ("", *(f".{arm}" for arm in ARMS))}
    names |= {f"{name}/seed" for name in names} if seeds > 1 else set()
    assert [item.step for item in result.yields] == [7, 14, 16]
    for item in result.yields:
        assert item.metrics.keys() == names
        for name in common | local:
            assert item.metrics[name].shape == (1,)
            of_arms = np.mean([item.metrics[f"{name}.{arm}"] for arm in ARMS])
            assert item.metrics[name].item() == pytest.approx(of_arms, rel=1e-5)
            if seeds > 1:
                each = item.metrics[f"{name}.prbs/seed"]
                assert each.shape == (1, 2)
                assert item.metrics[f"{name}.prbs"].item() == pytest.approx(each.mean(), rel=1e-5)


def test_ends_are_counted_and_the_region_s_outside_is_a_share():
    result = run(configured(env=NARROW, train={"transitions": 40, "record_every": 40}))
    truncated, path = result.state.replay.truncated[:, :40], result.state.path
    assert truncated.any()
    for arm in result.config.train.arms:
        lines = result.yields[0].metrics
        assert lines[f"truncations.{arm}"].item() == result.of(arm, truncated).sum() / 2
        outside = (result.of(arm, path).norm(dim=2) > 1).double().mean()
        assert lines[f"outside_region.{arm}"].item() == pytest.approx(outside.item())


@pytest.mark.parametrize(("min_windows", "before"), [(9, 13), (1, WARMUP)])
def test_updates_begin_with_enough_windows_after_the_warm_up(min_windows: int, before: int):
    """Windows are of six transitions, so that the ninth is there after the fourteenth
    transition.
    """
    windows_of_six = {**BRIEF, "window": 5, "min_windows": min_windows}
    result = run(
        configured(
            "seq_vae", train={"record_every": 2, "transitions": 18, "seq_vae": windows_of_six}
        )
    )
    for item in result.yields:
        lines = [item.metrics[name].item() for name in ("ell", "kl_steps", "grad_norm")]
        assert (np.array(lines) != 0).all() if item.step > before else lines == [0, 0, 0]
    updates = [[int(row.updates) for row in item.state.family_state[0]] for item in result.yields]
    assert updates == [
        [max(0, item.step - before)] * result.config.learners for item in result.yields
    ]
    start = train.init_state(result.config, result.dataset, 0)
    for name, value in start.params[0].items():
        assert torch.equal(result.yields[4].state.params[0][name], value)
        assert not torch.equal(result.state.params[0][name], value)


@both_families
def test_what_was_yielded_stays_as_it_was(family: str):
    train_part = {"arms": ARMS, "transitions": 26, "record_every": 5, "seq_vae": BRIEF}
    config = configured(family, env=SHORT, train=train_part)
    learners = []
    for progress in train.train(config, collect(config, 0), 0):
        learners.append((progress.state, copy.deepcopy(train.to_arrays(progress.state))))
    for state, packed in learners:
        for name, array in train.to_arrays(state).items():
            np.testing.assert_array_equal(array, packed[name], err_msg=name)


# What goes wrong.


@cache
def first_half(family: str) -> Run:
    return first_yield(configured(family, seeds=3, train={"record_every": 12}))


def refused(inputs: Run, state: State, why: str) -> None:
    with pytest.raises(TrainingDiverged, match=f"^{why}$"):
        next(train.train(inputs.config, inputs.dataset, 0, state))


REMEDIES = {
    "bayes_filter": (
        r"lower active_dynamics\.env\.dt or active_dynamics\.network\.rbf\.prior_field_sd"
    ),
    "seq_vae": r"lower active_dynamics\.train\.seq_vae\.learning_rate or max_grad_norm",
}


@pytest.mark.parametrize(
    ("family", "value"),
    [("bayes_filter", float("nan")), ("bayes_filter", float("inf")), ("seq_vae", float("nan"))],
)
def test_an_observation_that_is_not_finite_ends_the_training_with_its_row(
    family: str, value: float
):
    inputs = first_half(family)
    x = inputs.state.environment.x.clone()
    x[4, 1] = value
    broken = inputs.state._replace(environment=inputs.state.environment._replace(x=x))
    where = (
        r"active_dynamics stopped at transition 13: innovation_nll of learner random/1 is (nan|inf)"
    )
    refused(inputs, broken, f"{where}; {REMEDIES[family]}")


@both_families
def test_the_moment_is_that_of_the_transition_not_of_the_yield(
    family: str, monkeypatch: pytest.MonkeyPatch
):
    def unseen(record: StepRecord) -> StepRecord:
        y = record.observed.observation.clone()
        y[2, 5] = float("nan")
        return record._replace(observed=record.observed._replace(observation=y))

    inputs = first_half(family)
    told_otherwise(monkeypatch, 17, unseen)
    refused(
        inputs,
        inputs.state,
        rf"active_dynamics stopped at transition 18: .* of learner active/2 .*{REMEDIES[family]}",
    )


@pytest.mark.parametrize("part", ["mean", "covariance"])
def test_a_belief_that_is_not_finite_ends_the_training_with_its_row(part: str):
    inputs = first_half("bayes_filter")
    value = getattr(inputs.state.params, part).clone()
    value[3] = float("nan")
    broken = inputs.state._replace(params=inputs.state.params._replace(**{part: value}))
    refused(
        inputs,
        broken,
        f"active_dynamics stopped at transition 13: .* of learner random/0 "
        f".*{REMEDIES['bayes_filter']}",
    )


def test_a_network_that_is_not_finite_ends_the_training_with_its_row():
    inputs = first_half("seq_vae")
    params = [
        {name: value.clone() for name, value in local.items()} for local in inputs.state.params
    ]
    params[1]["dynamics.weight"][0] = float("nan")
    broken = inputs.state._replace(params=tuple(params))
    refused(
        inputs,
        broken,
        f"active_dynamics stopped at transition 13: .* of learner active/1 .*{REMEDIES['seq_vae']}",
    )


def test_weights_are_looked_at_too():
    """The last update of a yield may break what no transition has met yet."""
    inputs = first_half("seq_vae")
    training = TrainingState.from_state(inputs.config, inputs.dataset, inputs.state)
    with torch.no_grad():
        training.learner.trainers[5].network.first_mean.fill_(float("nan"))
    where = (
        "active_dynamics stopped at transition 12: params/first_mean of learner random/2 is not "
        "finite"
    )
    with pytest.raises(TrainingDiverged, match=re.escape(where)):
        train.records.check_finite(training, {"innovation_nll": torch.zeros(5, 6)})


@pytest.mark.parametrize(
    ("family", "part"),
    [
        ("bayes_filter", "params/covariance"),
        ("bayes_filter", "params/mean"),
        ("seq_vae", "family_state/hidden"),
        ("seq_vae", "family_state/posterior/covariance"),
        ("seq_vae", "family_state/optimizer/exp_avg/first_mean"),
        ("seq_vae", "family_state/ell"),
    ],
)
@pytest.mark.parametrize("seeds", [1, 2])
def test_what_the_last_transition_broke_is_not_handed_out(family: str, part: str, seeds: int):
    """Also where as many rows as there are parts of a state could be mistaken for each other."""
    arms = ("active", "random") if seeds == 1 else ("random",)
    inputs = first_yield(configured(family, seeds=seeds, train={"arms": arms}))
    training = TrainingState.from_state(inputs.config, inputs.dataset, inputs.state)
    broken: Any = training.learner
    row = len(arms) * seeds - 1
    _, *names = part.split("/")
    if family == "bayes_filter":
        getattr(broken.belief, names[0])[row, 5] = float("nan")
    elif names == ["ell"]:
        broken.metrics["ell"][row] = float("nan")
    elif names[0] == "optimizer":
        worker = broken.trainers[row]
        worker.optimizer.state[worker.network.first_mean]["exp_avg"].fill_(float("inf"))
    elif names[0] == "hidden":
        broken.trainers[row].hidden = broken.trainers[row].hidden * float("inf")
    else:
        reference = broken.trainers[row].posterior
        broken.trainers[row].posterior = reference._replace(
            covariance=reference.covariance * float("nan")
        )
    whose = f"{arms[-1]}/{seeds - 1}"
    where = (
        rf"active_dynamics stopped at transition {training.transitions}: {part} of learner {whose} "
        rf"is not finite; "
    )
    with pytest.raises(TrainingDiverged, match=f"^{where}{REMEDIES[family]}"):
        train.records.check_finite(training, {})


def test_information_that_cannot_be_told_ends_the_training():
    inputs = first_half("bayes_filter")
    training = TrainingState.from_state(inputs.config, inputs.dataset, inputs.state)
    belief: Any = training.learner
    belief.belief.covariance[4, 7, 7] = -1.0
    training.information = training.learner.information()
    assert training.information.isnan().tolist() == [False] * 4 + [True] + [False] * (
        inputs.config.learners - 5
    )
    where = (
        "active_dynamics stopped at transition 12: information_gained of learner random/1 is not "
        "finite"
    )
    with pytest.raises(TrainingDiverged, match=re.escape(where)):
        train.records.check_finite(training, {})


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        (
            {"seeds": 4},
            r"train\.observations has shape \(2, 11, 8\), this config wants \(4, 11, 8\)",
        ),
        (
            {"collect": {"warmup": 12}},
            r"train\.observations has shape \(2, 11, 8\), this config wants \(2, 13, 8\)",
        ),
        (
            {"env": {"field": {"kind": "duffing"}}},
            r"the dataset is of another field than env\.field",
        ),
        (
            {"env": {"field": {"parameters": {"w": 1.5}}}},
            r"the dataset is of another field than env\.field",
        ),
    ],
)
def test_a_dataset_of_another_config_is_refused(sections: dict[str, Any], why: str):
    dataset = collect(small("active_dynamics"), 0)
    with pytest.raises(DatasetMismatch, match=f"active_dynamics: {why}; collect again"):
        next(train.train(configured(**sections), dataset, 0))


@pytest.mark.parametrize("column", ["observations", "next_observations"])
def test_a_start_that_is_not_finite_is_refused_with_its_place(column: str):
    config = small("active_dynamics")
    dataset = collect(config, 0)
    getattr(dataset.train, column)[1, 4, 6] = np.nan
    why = (
        f"active_dynamics: train.{column} of replicate 1 at transition 4 is not finite; collect "
        f"again"
    )
    with pytest.raises(DatasetMismatch, match=re.escape(why)):
        next(train.train(config, dataset, 0))


@both_families
def test_arrays_of_another_network_are_refused(family: str):
    inputs = first_half(family)
    arrays = train.to_arrays(inputs.state)
    wider = configured(family, seeds=3, network={"rbf": {"side": 6}})
    with pytest.raises(ValueError, match="not a learner of this config: params/"):
        train.from_arrays(wider, inputs.dataset, arrays)


# Whatever is looked for, however it is found.

ENSEMBLE = {"seq_vae": {"dynamics": "ensemble", "members": 3}}
LOOKED_FOR = [
    *(
        (FAMILIES[0], {}, name, "icem")
        for name in ("variance", "information", "fisher_d", "fisher_a", "action_cost")
    ),
    (FAMILIES[1], {"seq_vae": {"dynamics": "mlp"}}, "information", "icem"),
    (FAMILIES[1], {}, "fisher_a", "icem"),
    (FAMILIES[1], ENSEMBLE, "disagreement", "icem"),
    (FAMILIES[0], {}, "variance", "mppi"),
    (FAMILIES[0], {}, "fisher_d", "mppi"),
    (FAMILIES[1], ENSEMBLE, "disagreement", "mppi"),
]


@pytest.mark.parametrize(("family", "network", "value", "kind"), LOOKED_FOR)
def test_every_value_is_looked_for_and_both_planners_find_it(
    family: str, network: dict[str, Any], value: str, kind: str
):
    weights_of = {"variance": 0.0, value: 1.0}
    train_part = {
        "arms": ("active",),
        "transitions": 20,
        "checkpoints": 2,
        "acquisition": {"weights": weights_of},
        "planner": {"kind": kind, "iterations": 2},
    }
    result = run(configured(family, network=network, train=train_part))
    actions = result.state.replay.actions[:, WARMUP:20]
    assert actions.isfinite().all()
    assert actions.any()
    assert all(
        np.isfinite(value).all() for item in result.yields for value in item.metrics.values()
    )


def test_what_is_looked_for_and_how_it_is_found_decide_what_is_done():
    done = []
    for kind in ("icem", "mppi"):
        for value in ("variance", "information", "fisher_d", "fisher_a"):
            weights_of = {"variance": 0.0, value: 1.0}
            train_part = {
                "acquisition": {"weights": weights_of},
                "planner": {"kind": kind},
                "transitions": 18,
            }
            done.append(
                run(configured(seeds=1, train={"arms": ("active",), **train_part})).state.path
            )
    assert all(
        not torch.equal(item, other) for place, item in enumerate(done) for other in done[:place]
    )
