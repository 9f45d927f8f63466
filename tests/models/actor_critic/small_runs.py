"""Small trained runs, each with all that its figures are of."""

from typing import Any, NamedTuple

from matplotlib.figure import Figure

from quatrain.models.actor_critic import plots as room
from quatrain.models.actor_critic.collect import Dataset, collect
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import evaluate
from quatrain.models.actor_critic.figures.replays import Replays, replay_policies
from quatrain.models.actor_critic.train import State, train
from quatrain.progress import History, history, rows
from tests.conftest import shapes_unchecked, small

COLONIES = 40
FIXED = {"delete_ratio": 0.55, "gamma": 12.0, "alpha": 1.0, "noise": 0.4, "theta": 0.0}
ONE_PLATE = {"n_train": 1, "n_held_out": 1, "n_outside": 0}


class Run(NamedTuple):
    """A trained actor_critic, with what its figures are of."""

    config: ActorCriticConfig
    dataset: Dataset
    state: State
    history: History
    scores: dict[str, float]

    @property
    def replays(self) -> Replays:
        held_out = self.dataset.held_out
        return replay_policies(
            self.config, self.state, held_out.references, held_out.plates, held_out.colonies
        )

    def figures(self) -> dict[str, Figure]:
        return room.plots(self.config, self.state, self.dataset, self.history, self.scores)


def configured(**sections: Any) -> ActorCriticConfig:
    """The small config with sections changed; it trains for four iterations."""
    lighter = {"collect": {"held_out_colonies": COLONIES}, "train": {"transitions": 24 * 8 * 4}}
    changed = {name: part | sections.get(name, {}) for name, part in lighter.items()}
    return small("actor_critic", **(sections | changed))


def free(*names: str) -> dict[str, Any]:
    """Only these numbers of an action are chosen."""
    fixed = {name: at for name, at in FIXED.items() if name not in names}
    return {"active_params": names, "fixed_params": fixed}


def run(config: ActorCriticConfig) -> Run:
    with shapes_unchecked():
        dataset, result, last = collect(config, 0), [], 0
        for progress in train(config, dataset, 1):
            result += rows(progress, last)
            last = progress.step
        scores = evaluate(config, progress.state, dataset, 0)
    return Run(config, dataset, progress.state, history(result), scores)
