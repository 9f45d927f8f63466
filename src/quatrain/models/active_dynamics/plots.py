"""learner, dataset, history -> figures of the learned field, its uncertainty and the exploration"""

from collections.abc import Mapping

from quatrain.models.active_dynamics.collect import Dataset
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.figures import actions, curves, innovations, plane
from quatrain.models.active_dynamics.figures.study import PLANE, make_study
from quatrain.models.active_dynamics.state import State
from quatrain.plots import Picture, house_style, in_order
from quatrain.progress import History

# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "field": "The task, and its result: the unknown field that moves a state, what was learned of "
    "it from noisy observations, and the difference.",
    "learning_curve": "Learning: error of the learned field over transitions. Planned actions "
    "(active) need fewer than random ones for the same error.",
    "actions": "How: the actions of each kind of exploration, and where they lead.",
    "uncertainty": "The result: where the learner expects errors, and where they are.",
    "horizon": "Comparison: how well the learned field predicts several transitions ahead.",
    "information": "Detail: information gained, and whether the expected error is the actual one.",
    "innovation": "Detail: how surprised the learner is, beside a filter that knows the field.",
    "misfit": "Detail: signs that features or noise do not fit.",
    "elbo": "Detail: the terms of the evidence bound.",
}


@house_style
def plots(
    config: ActiveDynamicsConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Picture]:
    """Draws the figures: medians over replicates, or the replicate of median error.

    Maps need a field in the plane; terms of the evidence bound need seq_vae.
    """
    study = make_study(config, state, dataset)
    pictures: dict[str, Picture] = {
        "learning_curve": curves.draw_learning_curve(study, scores),
        "actions": actions.draw_actions(study),
        "horizon": curves.draw_horizon(study),
        "information": curves.draw_information(study, history),
        "innovation": innovations.draw_innovation(study, history, scores),
        "misfit": innovations.draw_misfit(study, scores),
    }
    if config.env.d == PLANE:
        chart = plane.make_chart(study)
        pictures["field"] = plane.draw_field(study, chart)
        pictures["uncertainty"] = plane.draw_uncertainty(study, chart)
    if config.network.family == "seq_vae":
        pictures["elbo"] = curves.draw_elbo(study, history)
    return in_order(pictures, CAPTIONS)
