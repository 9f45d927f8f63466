"""learner, dataset, history -> figures of the learned field, its uncertainty and the exploration"""

from typing import Any

from quatrain.models.active_dynamics.config import ActiveDynamicsConfig, ActiveDynamicsUserEnvConfig
from quatrain.models.active_dynamics.figures import curves, plane
from quatrain.models.active_dynamics.figures.study import PLANE, make_study
from quatrain.models.active_dynamics.user_env import figures
from quatrain.plots import Picture, house_style, in_order
from quatrain.progress import Evaluation, History

# Picture -> the question that it answers, and how: the first on the model's card, then in the
# order of the story.
CAPTIONS = {
    "film": "How does it learn the field? Red: the arrows of the field that moves a state, as "
    "learned so far from noisy observations; grey: the true ones, which it was never shown; dots: "
    "the states that it has chosen to visit.",
    "field": "What was learned? The unknown field that moves a state, what was learned of it from "
    "noisy observations, and the difference.",
    "learning_curve": "Do planned actions need fewer transitions? Error of the learned field over "
    "transitions, for each kind of exploration.",
    "actions": "How do they explore? The actions of each kind of exploration, and where they lead.",
    "uncertainty": "Does it know where it errs? Where the learner expects errors, and where they "
    "are.",
    "misfit": "Do features and noise fit? Errors near the data, and innovations that a right "
    "filter would not have.",
    "elbo": "Does the evidence bound rise? Its terms while learning.",
}


@house_style
def plots(
    config: ActiveDynamicsConfig, state: Any, dataset: Any, history: History, evaluation: Evaluation
) -> dict[str, Picture]:
    """Draws the figures: medians over replicates, or the replicate of median error.

    Maps need a field in the plane. A filter has innovations, seq_vae a bound on the evidence.
    """
    if isinstance(config, ActiveDynamicsUserEnvConfig):
        return figures.draw(config, state, dataset, history, evaluation)
    scores = evaluation.scores
    study = make_study(config, state, dataset, evaluation.outcomes)
    pictures: dict[str, Picture] = {
        "learning_curve": curves.draw_learning_curve(study, scores),
        "actions": curves.draw_actions(study),
    }
    if config.env.d == PLANE:
        chart = plane.make_chart(study)
        pictures["film"] = plane.film_field(study)
        pictures["field"] = plane.draw_field(study, chart)
        pictures["uncertainty"] = plane.draw_uncertainty(study, chart)
    if config.network.family == "seq_vae":
        pictures["elbo"] = curves.draw_elbo(study, history)
    else:
        pictures["misfit"] = curves.draw_misfit(study, scores)
    return in_order(pictures, CAPTIONS)
