"""What figures show of episodes: what was learned, where it stands, a film."""

import numpy as np
import pytest
import torch

from quatrain.envs.colony.dynamics import hill_length
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.models.actor_critic.figures import baseline_comparison, episode_strip, policy_response
from quatrain.models.actor_critic.figures.replays import (
    Steps,
    format_number,
    format_signed,
    median_colony,
    next_size,
    sizes,
    steps_of,
    throw,
)
from quatrain.plots import BLUE
from tests.models.actor_critic.small_runs import COLONIES, Run, configured, free, run


@pytest.fixture(scope="module")
def plain() -> Run:
    return run(configured())


# What was learned.


def test_steps_stand_beside_the_state_that_they_answered(plain: Run):
    held_out, (outcome,) = plain.dataset.held_out, plain.replays.learned
    result = steps_of(held_out.plates, held_out.colonies, outcome)
    n, y, stiffness, action = [], [], [], []
    for time in range(len(outcome.n)):
        for colony in range(COLONIES):
            if time >= outcome.lengths[colony]:
                continue
            size, plate = held_out.colonies.n[colony], held_out.colonies.substrate[colony]
            first = held_out.colonies.pos[colony, :size].mean(0, dtype=np.float64)
            x_at, y_at = first if time == 0 else outcome.centroid[time - 1, colony]
            n.append(size if time == 0 else outcome.n[time - 1, colony])
            y.append(y_at)
            stiffness.append(held_out.plates.intensity[plate, int(x_at)])
            action.append(outcome.action[time, colony])
    for ours, other in zip(result, (n, y, stiffness, action), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-6)


def test_next_sizes_and_throws_are_those_of_the_dynamics(plain: Run):
    held_out, (outcome,) = plain.dataset.held_out, plain.replays.learned
    steps = steps_of(held_out.plates, held_out.colonies, outcome)
    np.testing.assert_array_equal(next_size(steps), outcome.n[np.isfinite(outcome.n)])
    _, gamma, alpha, noise, _ = torch.tensor(steps.action).T
    np.testing.assert_allclose(
        throw(steps), hill_length(gamma, alpha, noise, torch.tensor(steps.stiffness)[:, None])[:, 0]
    )


@pytest.mark.parametrize(
    ("names", "answers"),
    [
        (PARAMETERS, 4),
        (("delete_ratio",), 1),
        (("gamma", "theta"), 3),
        (("alpha",), 1),
        (("noise",), 1),
    ],
)
def test_only_what_is_free_has_a_law(names: tuple[str, ...], answers: int):
    steps = Steps(
        np.array([40.0]), np.array([30.0]), np.array([2.0]), np.array([[0.5, 9, 1, 0.4, 0]])
    )
    assert (
        len(
            policy_response.policy_responses(
                configured(env={"action": free(*names)}), [steps], steps
            )
        )
        == answers
    )


def test_beside_the_learned_law_of_the_size_is_the_one_that_holds_it(plain: Run):
    figure = policy_response.draw_policy_response(plain.config, plain.dataset, plain.replays)
    (line,) = (line for line in figure.axes[0].lines if line.get_color() == BLUE)
    n, ratio = line.get_xdata(), line.get_ydata()
    np.testing.assert_allclose(ratio, np.clip(1 - 6 / (2 * n), 0, 0.7))


def test_bins_have_quantiles_of_enough_steps_and_none_of_few():
    x = np.concatenate([np.full(50, 0.5), np.full(3, 1.5), [3.0]])
    y = np.arange(54.0)
    low, median, high = policy_response.binned(x, y, np.array([0.0, 1, 2, 3]))
    assert (low[0], median[0], high[0]) == pytest.approx((4.9, 24.5, 44.1))
    assert np.isnan([low[1:], median[1:], high[1:]]).all()


def test_quantiles_within_an_episode_are_of_colonies_that_still_live(plain: Run):
    action = np.full((3, 20, 5), np.nan)
    action[0], action[1, :2], action[2, 0] = np.arange(20)[:, None], [[4.0], [8.0]], 1
    outcome = plain.replays.learned[0]._replace(action=action)
    steps, quantiles = policy_response.within_episode([outcome], 1)
    assert steps.tolist() == [1, 2]  # in the third step one of twenty lives
    assert quantiles[:, 0].tolist() == pytest.approx([0.95, 4.75, 9.5, 14.25, 18.05])
    assert quantiles[2, 1] == 6


# Where it stands.


def test_courses_are_sizes_from_the_start_to_the_end(plain: Run):
    replays = plain.replays
    figure = baseline_comparison.draw_sizes(plain.config, plain.dataset, replays)
    starts_at = plain.dataset.held_out.colonies
    for axes, name in zip(figure.axes, baseline_comparison.COMPARED, strict=False):
        courses = [
            line.get_ydata()
            for line in axes.lines
            if len(line.get_ydata()) > 2 and line.get_marker() == "None"
        ]
        expected = np.minimum(
            sizes(starts_at, replays.outcomes(name)[0])[:, : baseline_comparison.DRAWN_COLONIES],
            1.1 * 32,
        )
        np.testing.assert_array_equal(np.stack(courses, 1), expected)
        assert expected[0].tolist() == starts_at.n[: baseline_comparison.DRAWN_COLONIES].tolist()


def test_pairs_are_returns_with_the_same_colony(plain: Run):
    replays = plain.replays
    figure = baseline_comparison.draw_paired(plain.config, plain.dataset, replays)
    for axes, other in zip(figure.axes, (replays.constant, replays.feedback), strict=False):
        (dots,) = axes.collections
        np.testing.assert_array_equal(
            dots.get_offsets().T, [other.returns, replays.learned[0].returns]
        )
        better = (replays.learned[0].returns > other.returns).mean()
        assert f"better with {better:.0%} of {COLONIES} colonies" in axes.get_title(loc="left")


def test_the_return_on_a_plate_is_the_mean_over_its_colonies(plain: Run):
    held_out = plain.dataset.held_out
    replays = plain.replays
    returns, observed = replays.learned[0].returns, 0
    for kind in baseline_comparison.KIND_NAMES:
        slopes, _, means = baseline_comparison.by_plate(replays, returns, kind)
        for m, mean in zip(slopes, means, strict=True):
            (plate,) = np.flatnonzero((held_out.plates.m == m) & (held_out.plates.kind == kind))
            assert mean == pytest.approx(returns[held_out.colonies.substrate == plate].mean())
            observed += 1
    assert observed == len(np.unique(held_out.colonies.substrate))


def test_constants_below_the_edge_lie_on_it(plain: Run):
    (axes, _) = baseline_comparison.draw_constant_search(
        plain.config, plain.dataset, plain.scores
    ).axes
    dots, rings = axes.collections
    search, bottom = plain.dataset.train.search, axes.get_ylim()[0]
    np.testing.assert_allclose(dots.get_offsets()[:, 1], np.maximum(search.returns, bottom))
    np.testing.assert_allclose(dots.get_offsets()[:, 0], search.actions[:, 0])
    assert bottom < min(plain.scores["random_return"], plain.scores["return_mean"])
    assert len(rings.get_offsets()) == len(search.finalists)
    assert {f"best constant {format_number(plain.scores['constant_return'])}"} <= {
        text.get_text() for text in axes.texts
    }


# The film.


def test_the_film_shows_the_episode_that_was_judged(plain: Run):
    (outcome,) = plain.replays.learned
    selected = median_colony(outcome)
    pictures = episode_strip.capture_frames(plain.config, plain.state, plain.dataset, selected)
    assert [observed.step for observed in pictures] == list(range(outcome.lengths[selected] + 1))
    assert [observed.n for observed in pictures[1:]] == outcome.n[
        : outcome.lengths[selected], selected
    ].tolist()
    np.testing.assert_allclose(
        pictures[-1].pos.mean(0), outcome.centroid[len(pictures) - 2, selected], rtol=1e-4
    )
    figure = episode_strip.draw_episode_strip(
        plain.config, plain.state, plain.dataset, plain.replays
    )
    first = figure.axes[0]
    assert first.get_title(loc="left") == f"step 0: {pictures[0].n} cells"
    _, cells = first.collections
    np.testing.assert_array_equal(cells.get_offsets(), pictures[0].pos)


def test_the_typical_colony_has_the_median_return(plain: Run):
    returns = np.array([9.0, -1.0, 2.0])
    assert median_colony(plain.replays.learned[0]._replace(returns=returns)) == 2


def test_numbers_are_as_short_as_they_can_be():
    assert [format_signed(value) for value in (1.234, -0.001, -1234.5)] == [
        "+1.23",
        "+0.00",
        "-1,234",
    ]
    assert [format_number(value) for value in (1.234, -1.234)] == ["1.23", "-1.23"]
