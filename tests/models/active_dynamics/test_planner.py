"""The search for actions: plain loops, what is judged again, coloured noise, and what it finds."""

import pytest
import torch
from torch import Tensor

from quatrain.models.active_dynamics import planner
from quatrain.models.active_dynamics.acquisition import WORST, scorer
from quatrain.models.active_dynamics.config import Acquisition, Planner
from quatrain.models.active_dynamics.planner import (
    Plan,
    colouring,
    decision,
    first_plan,
    improved,
    replan,
    shifted,
)
from tests.models.active_dynamics import surrogates
from tests.models.active_dynamics.surrogates import latent_surrogate, single

ROWS, SIZE, BOUND = 3, 2, 0.5
SMALL = {"candidates": 11, "iterations": 4, "horizon": 6, "elites": 5, "keep": 3, "alpha": 0.2}
CPU = torch.device("cpu")


def configured(**changes: object) -> Planner:
    return surrogates.planner(**(SMALL | changes))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_plan(config: Planner, seed: int = 5) -> Plan:
    """In the box."""
    drawn = (
        torch.rand(ROWS, 1 + config.keep, config.horizon, SIZE, generator=generator(seed))
        * (2 * BOUND)
        - BOUND
    )
    return Plan(drawn[:, 0], drawn[:, 1:])


def some_noise(config: Planner, seed: int = 6) -> Tensor:
    shape = (config.iterations, ROWS, config.candidates - 1 - config.keep, config.horizon, SIZE)
    return torch.randn(shape, generator=generator(seed))


def goal(config: Planner) -> Tensor:
    """Of each row another one, some of it outside the box."""
    return torch.randn(ROWS, config.horizon, SIZE, generator=generator(7)) * BOUND


def nearness(to: Tensor) -> planner.Score:
    return lambda actions: -(actions - to[:, None]).square().sum((2, 3))


class Watched:
    """A score that remembers what it was asked, and what it answered."""

    def __init__(self, score: planner.Score) -> None:
        self.score, self.asked, self.answered = score, [], []

    def __call__(self, actions: Tensor) -> Tensor:
        self.asked.append(actions.clone())
        self.answered.append(self.score(actions))
        return self.answered[-1]


def plain_icem(
    config: Planner, mean: Tensor, elites: list[Tensor], noise: Tensor, to: Tensor
) -> Plan:
    """Of one row, by lists."""
    std = torch.full_like(mean, config.init_std * BOUND)
    for drawn in noise:
        candidates = [mean, *elites, *[(mean + std * item).clamp(-BOUND, BOUND) for item in drawn]]
        ranked = sorted(
            candidates, key=lambda item: -float((item - to).square().sum()), reverse=True
        )
        best = torch.stack(ranked[: config.elites])
        average = best.sum(0) / len(best)
        spread = ((best - average).square().sum(0) / len(best)).sqrt()
        mean = (1 - config.alpha) * average + config.alpha * mean
        std = (1 - config.alpha) * spread + config.alpha * std
        elites = ranked[: config.keep]
    return Plan(mean, torch.stack(elites))


def plain_mppi(
    config: Planner, mean: Tensor, elites: list[Tensor], noise: Tensor, to: Tensor
) -> Plan:
    std = config.init_std * BOUND
    for drawn in noise:
        candidates = [mean, *elites, *[(mean + std * item).clamp(-BOUND, BOUND) for item in drawn]]
        scores = torch.stack([-(item - to).square().sum() for item in candidates])
        standard = (scores - scores.mean()) / scores.std(correction=0)
        weights = torch.exp(standard / config.temperature)
        mean = sum(
            weight * item for weight, item in zip(weights / weights.sum(), candidates, strict=True)
        )
        elites = [candidates[place] for place in scores.argsort(descending=True)[: config.keep]]
    return Plan(mean, torch.stack(elites))


@pytest.mark.parametrize(("kind", "plain"), [("icem", plain_icem), ("mppi", plain_mppi)])
def test_the_search_of_all_rows_is_that_of_plain_loops(kind, plain):
    config = configured(kind=kind, temperature=0.7)
    plan, noise, to = some_plan(config), some_noise(config), goal(config)
    result = improved(config, BOUND, nearness(to), plan, noise)
    for row in range(ROWS):
        expected = plain(config, plan.mean[row], list(plan.elites[row]), noise[:, row], to[row])
        torch.testing.assert_close(result.mean[row], expected.mean)
        torch.testing.assert_close(result.elites[row], expected.elites)


@pytest.mark.parametrize("kind", ["icem", "mppi"])
def test_rows_do_not_influence_each_other(kind):
    config, order = configured(kind=kind), torch.tensor([2, 0, 1])
    plan, noise, to = some_plan(config), some_noise(config), goal(config)
    result = improved(config, BOUND, nearness(to), plan, noise)
    permuted = improved(
        config,
        BOUND,
        nearness(to[order]),
        Plan(plan.mean[order], plan.elites[order]),
        noise[:, order],
    )
    assert torch.equal(permuted.mean, result.mean[order])
    assert torch.equal(permuted.elites, result.elites[order])


@pytest.mark.parametrize("kind", ["icem", "mppi"])
def test_a_row_whose_scores_all_failed_leaves_the_others_alone(kind):
    config = configured(kind=kind)
    plan, noise, near = some_plan(config), some_noise(config), nearness(goal(config))
    failed = torch.tensor([0.0, 0.0, WORST])[:, None]
    sound, broken = (
        improved(
            config,
            BOUND,
            lambda actions, worse=worse: near(actions) * (worse == 0) + worse,
            plan,
            noise,
        )
        for worse in (failed * 0, failed)
    )
    assert torch.equal(sound.mean[:2], broken.mean[:2])
    assert not torch.equal(sound.mean[2], broken.mean[2])
    assert (broken.mean.abs() <= BOUND).all()


def test_candidates_that_failed_count_nothing_and_change_nothing_of_what_others_count():
    """Every third fails; what remains are those of a search without them."""
    config = configured(kind="mppi", iterations=1, keep=0, temperature=0.5)
    plan, noise, to = first_plan(config, ROWS, SIZE), some_noise(config), goal(config)
    watched = Watched(nearness(to))
    failed = torch.arange(config.candidates) % 3 == 1
    result = improved(
        config, BOUND, lambda actions: watched(actions).masked_fill(failed, WORST), plan, noise
    )
    candidates, scores = watched.asked[0][:, ~failed], watched.answered[0][:, ~failed]
    weights = (
        (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True, correction=0) / 0.5
    ).softmax(1)
    torch.testing.assert_close(result.mean, (weights[:, :, None, None] * candidates).sum(1))
    assert weights.amax() > 3 * weights.amin()


def test_the_mean_and_the_elites_of_before_are_judged_again():
    config = configured()
    plan, watched = some_plan(config), Watched(nearness(goal(config)))
    improved(config, BOUND, watched, plan, some_noise(config))
    assert len(watched.asked) == config.iterations
    assert torch.equal(watched.asked[0][:, 0], plan.mean)
    assert torch.equal(watched.asked[0][:, 1 : 1 + config.keep], plan.elites)
    for before, scores, after in zip(
        watched.asked, watched.answered, watched.asked[1:], strict=False
    ):
        for row in range(ROWS):
            best = scores[row].argsort(descending=True)[: config.keep]
            assert torch.equal(after[row, 1 : 1 + config.keep], before[row, best])


def test_an_elite_that_is_no_longer_good_is_dropped():
    """The second judgement likes the opposite of the first."""
    config = configured(iterations=2, keep=1)
    to, signs = torch.full((ROWS, config.horizon, SIZE), BOUND), iter([1, -1])
    watched = Watched(lambda actions: next(signs) * nearness(to)(actions))
    result = improved(config, BOUND, watched, some_plan(config), some_noise(config))
    stale = watched.asked[1][:, 1]
    assert (watched.answered[1][:, 1] < watched.answered[1].amax(1)).all()
    assert not torch.equal(result.elites[:, 0], stale)


@pytest.mark.parametrize(("kind", "narrows"), [("icem", True), ("mppi", False)])
def test_icem_narrows_and_mppi_does_not(kind, narrows):
    config = configured(kind=kind, candidates=200, iterations=5, init_std=0.3)
    watched = Watched(nearness(torch.zeros(ROWS, config.horizon, SIZE)))
    improved(config, BOUND, watched, first_plan(config, ROWS, SIZE), some_noise(config))
    spreads = [asked[:, 1 + config.keep :].std().item() for asked in watched.asked]
    assert (spreads[-1] < 0.7 * spreads[0]) == narrows
    assert spreads[0] == pytest.approx(0.3 * BOUND, rel=0.05)


def test_no_candidate_leaves_the_box_and_many_reach_its_sides():
    config = configured(init_std=1.5)
    watched = Watched(nearness(goal(config)))
    result = improved(config, BOUND, watched, some_plan(config), some_noise(config))
    sizes = torch.stack(watched.asked).abs()
    assert sizes.amax() == BOUND
    assert (sizes[0, :, 1 + config.keep :] == BOUND).float().mean() > 0.3
    assert result.mean.abs().amax() <= BOUND


def test_a_plan_seen_later_keeps_its_last_decision():
    mean = torch.arange(5.0).view(1, 5, 1)
    elites = torch.stack([mean, -mean], 1)
    result = shifted(Plan(mean, elites), 2)
    assert result.mean.flatten().tolist() == [2, 3, 4, 4, 4]
    assert result.elites[0, :, :, 0].tolist() == [[2, 3, 4, 4, 4], [-2, -3, -4, -4, -4]]
    assert shifted(Plan(mean, elites), 5).mean.flatten().tolist() == [4] * 5


@pytest.mark.parametrize(("replan_every", "decisions"), [(2, 1), (6, 3)])
def test_a_search_starts_from_the_plan_of_before_as_it_is_seen_now(replan_every, decisions):
    config = configured(replan_every=replan_every)
    plan, watched = some_plan(config), Watched(nearness(goal(config)))
    replan(config, BOUND, watched, plan, generator())
    later = shifted(plan, decisions)
    assert torch.equal(watched.asked[0][:, 0], later.mean)
    assert torch.equal(watched.asked[0][:, 1 : 1 + config.keep], later.elites)


def test_each_decision_is_held_as_long_as_the_plan_imagined():
    config = configured(hold=2, replan_every=6)
    plan = some_plan(config)
    used = [decision(config, plan, age) for age in range(6)]
    for age, place in enumerate([0, 0, 1, 1, 2, 2]):
        assert torch.equal(used[age], plan.mean[:, place])


def test_the_first_plan_does_nothing():
    config = configured()
    plan = first_plan(config, ROWS, SIZE)
    assert plan.mean.shape == (ROWS, 6, SIZE)
    assert plan.elites.shape == (ROWS, 3, 6, SIZE)
    assert not plan.mean.any()
    assert not plan.elites.any()


def test_the_same_generator_makes_the_same_plan_and_goes_on():
    config = configured()
    score = nearness(goal(config))
    source, other = generator(3), generator(3)
    first, second = (replan(config, BOUND, score, some_plan(config), source) for _ in range(2))
    again, further = (replan(config, BOUND, score, some_plan(config), other) for _ in range(2))
    assert torch.equal(first.mean, again.mean)
    assert torch.equal(second.mean, further.mean)
    assert not torch.equal(first.mean, second.mean)


def test_a_plan_without_elites_to_keep():
    config = configured(keep=0)
    result = replan(
        config, BOUND, nearness(goal(config)), first_plan(config, ROWS, SIZE), generator()
    )
    assert result.elites.shape == (ROWS, 0, 6, SIZE)
    assert result.mean.any()


COLOURS = (0.0, 1.0, 2.0)


@pytest.mark.parametrize("decisions", [1, 7, 10])
@pytest.mark.parametrize("colour", COLOURS)
def test_coloured_noise_has_unit_variance_at_each_time(colour, decisions):
    matrix = colouring(decisions, colour, CPU)
    torch.testing.assert_close((matrix @ matrix.T).diagonal(), torch.ones(decisions))


def test_white_noise_stays_as_it_is():
    torch.testing.assert_close(colouring(7, 0.0, CPU), torch.eye(7))


@pytest.mark.parametrize("colour", COLOURS)
def test_what_is_drawn_has_unit_variance_and_the_asked_spectral_slope(colour):
    """Of the candidates of a plan, at ±bound that clips nothing, by a fit of log power on log
    frequency.
    """
    config = configured(candidates=4000, iterations=1, horizon=16, colour=colour, init_std=0.01)
    watched = Watched(lambda actions: actions.sum((2, 3)))
    replan(config, BOUND, watched, first_plan(config, ROWS, SIZE), generator())
    drawn = watched.asked[0][:, 1 + config.keep :] / (0.01 * BOUND)
    torch.testing.assert_close(drawn.var((0, 1, 3)), torch.ones(16), rtol=0.05, atol=0)
    power = torch.fft.rfft(drawn, dim=2).abs().square().mean((0, 1, 3))[1:].log()
    frequency = torch.arange(1, 9).float().log()
    centred = frequency - frequency.mean()
    assert float((centred * power).sum() / centred.square().sum()) == pytest.approx(
        -colour, abs=0.03
    )


def test_rows_dimensions_and_iterations_are_drawn_apart():
    config = configured(candidates=2000, iterations=2, horizon=1, elites=1900, init_std=0.01)
    watched = Watched(lambda actions: actions.sum((2, 3)) * 0)
    replan(config, BOUND, watched, first_plan(config, ROWS, SIZE), generator())
    drawn = torch.cat([asked[:, 1 + config.keep :, 0] for asked in watched.asked], 2)
    correlation = torch.corrcoef(drawn.transpose(1, 2).flatten(0, 1))
    assert (correlation - torch.eye(len(correlation))).abs().amax() < 0.1


def settled(config: Planner, score: planner.Score, plannings: int = 8) -> Tensor:
    """Decisions of a later planning."""
    plan, source = first_plan(config, ROWS, SIZE), generator()
    for _ in range(plannings):
        plan = replan(config, BOUND, score, plan, source)
    return decision(config, plan, 0)


@pytest.mark.parametrize("kind", ["icem", "mppi"])
def test_who_likes_action_goes_to_the_bound(kind):
    config = surrogates.planner(kind=kind, temperature=0.1)
    likes = torch.tensor([[1.0, -1.0], [-1.0, -1.0], [2.0, 0.5]])
    result = settled(config, lambda actions: (actions * likes[:, None, None]).sum((2, 3)))
    assert (result * likes.sign() > 0.95 * BOUND).all()


@pytest.mark.parametrize("kind", ["icem", "mppi"])
def test_who_only_pays_for_action_takes_none(kind):
    surrogate = single(latent_surrogate(ROWS).surrogate)._replace(region_radius=1e6)
    score = scorer(surrogate, Acquisition(weights={"action_cost": 1.0}, margin=0.0), 2)
    result = settled(surrogates.planner(kind=kind, temperature=0.1), score)
    assert (result.abs() < 0.1 * BOUND).all()


def test_a_plan_teaches_more_than_most_random_actions():
    config, rows = surrogates.planner(), 12
    surrogate = single(latent_surrogate(rows, side=7, seed=2).surrogate)
    score = scorer(surrogate, Acquisition(weights={"variance": 1.0}, margin=0.2), config.hold)
    plan = replan(config, 1.0, score, first_plan(config, rows, SIZE), generator())
    random = surrogates.actions(rows, 300, config.horizon).float()
    among = score(torch.cat([plan.mean[:, None], random], 1))
    beaten = (among[:, :1] > among[:, 1:]).float().mean(1)
    assert beaten.mean() > 0.9
