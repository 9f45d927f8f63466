"""Evaluations while training: which weights are kept, and what is said where nothing succeeds."""

import warnings
from typing import Any

import pytest
import torch

from quatrain.envs.colony.rules import SUCCESS
from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.collect import collect
from quatrain.models.actor_critic.ppo import learner as learning
from quatrain.models.actor_critic.ppo.learner import NOT_EVALUATED
from quatrain.models.actor_critic.scores.colony import run_policy
from quatrain.models.actor_critic.worlds import colony
from quatrain.models.actor_critic.worlds.colony_data import Dataset
from tests.conftest import shapes_unchecked, small
from tests.models.actor_critic.test_train import CONFIG, make_learner, trained


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    with shapes_unchecked():
        return collect(CONFIG, 0)


def test_the_weights_that_were_best_on_validation_colonies_are_kept(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
):
    """Every second iteration and after the last; of equal ones the first."""
    scores = iter([(1.0, 0.0), (3.0, 0.5), (3.0, 1.0), (2.0, 1.0)])
    monkeypatch.setattr(colony, "validate", lambda *_: next(scores))
    length = {"record_every": 1, "evaluate_every": 2, "transitions": 24 * 8 * 7}
    config = small("actor_critic", train=length)
    with shapes_unchecked():
        yields = list(train.train(config, dataset, 0))
    assert [len(item.metrics["validation_return"]) for item in yields] == [0, 1, 0, 1, 0, 1, 1]
    assert [item.metrics["validation_success"].tolist() for item in yields[3:7:2]] == [[0.5], [1]]
    (best,) = yields[-1].state.best
    assert (best.iteration, best.validation_return, best.validation_success) == (4, 3, 0.5)
    torch.testing.assert_close(best.params, yields[3].state.params[0], rtol=0, atol=0)
    actor = learning.load_actor(config, colony.spec_of(config), best.params)
    torch.testing.assert_close(dict(actor.eager.state_dict()), best.params)  # type: ignore[attr-defined]


def test_without_evaluations_the_last_weights_are_the_best(dataset: Dataset):
    last = trained(CONFIG, dataset)
    (best,) = last.state.best
    assert (int(best.iteration), float(best.validation_return)) == (3, NOT_EVALUATED)
    torch.testing.assert_close(best.params, last.state.params[0], rtol=0, atol=0)
    assert len(last.metrics["validation_return"]) == 0


def test_a_validation_is_the_deterministic_policy_on_each_colony(dataset: Dataset):
    learner = make_learner(CONFIG, dataset)
    starts = dataset.train.validation
    with shapes_unchecked():
        result = colony.validate(learner, dataset)
        outcome = run_policy(
            CONFIG, train.init_state(CONFIG, dataset, 0).seeds[0], dataset.train.plates, starts
        )
    expected = outcome.returns.mean(), (outcome.reasons == SUCCESS).mean()
    assert result == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("success", "warned"), [(0.0, True), (0.1, False)])
def test_one_warning_says_that_no_colony_reaches_the_goal(
    success: float, warned: bool, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
):
    """Of the evaluations after 4 iterations and after the last, the fifth, only the first warns."""
    monkeypatch.setattr(colony, "validate", lambda *_: (-2.4, success))
    length = {"record_every": 2, "evaluate_every": 4, "transitions": 24 * 8 * 5}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained(small("actor_critic", train=length), dataset)
    lines = [str(item.message) for item in caught if "actor_critic" in str(item.message)]
    assert len(lines) == warned
    assert not lines or lines[0].startswith(
        "actor_critic: after 768 transitions no validation colony reaches the goal (learner 0)"
    )


SLOWER = "lower actor_critic.train.discount"


@pytest.mark.parametrize(
    ("reward", "advice"),
    [
        (
            {"preset": "goal_control"},
            f"ending early may pay more than moving slowly; {SLOWER}, raise .transitions, or set "
            "actor_critic.env.reward.preset: goal_control_safe",
        ),
        ({"preset": "goal_control_safe"}, f"{SLOWER} or raise .transitions"),
        ({"weights": {"forfeit": 0.5}}, f"{SLOWER} or raise .transitions"),
    ],
    ids=["ending early is free", "safe preset", "a forfeit of one's own"],
)
def test_a_warning_advises_the_safe_preset_only_without_a_forfeit(
    reward: dict[str, Any], advice: str
):
    config = small("actor_critic", env={"reward": reward})
    with pytest.warns(UserWarning, match="actor_critic") as caught:
        colony.warn_without_success(config, "held-out", 576, [0.0, 0.5, 0.0])
    (line,) = [str(item.message) for item in caught]
    assert line == (
        "actor_critic: after 576 transitions no held-out colony reaches the goal "
        f"(learner 0, 2): {advice}"
    )
