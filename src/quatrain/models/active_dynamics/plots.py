"""learner, dataset, history -> figures of the learned field, its uncertainty and the exploration"""

from collections.abc import Mapping

from matplotlib.figure import Figure

from quatrain.models.active_dynamics.collect import Dataset
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.figures import (
    actions,
    calibration,
    horizon,
    learning,
    misfit,
    plane,
    surprise,
)
from quatrain.models.active_dynamics.figures.study import PLANE, make_study
from quatrain.models.active_dynamics.state import State
from quatrain.plots import house_style
from quatrain.progress import History


@house_style
def plots(
    config: ActiveDynamicsConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Draws the figures: medians over replicates, or the replicate of median error.

    Maps and portraits need a field in the plane; terms of the evidence bound need seq_vae.
    """
    study = make_study(config, state, dataset)
    figures = {"learning_curve": learning.draw_learning_curve(study, scores)}
    if config.env.d == PLANE:
        chart = plane.make_chart(study)
        figures = {"field": plane.draw_field(study, chart)} | figures
        figures["uncertainty"] = plane.draw_uncertainty(study, chart)
        figures["portraits"] = plane.draw_portraits(study)
    figures |= {
        "actions": actions.draw_actions(study),
        "horizon": horizon.draw_horizon(study),
        "information": learning.draw_information(study, history),
        "calibration": calibration.draw_calibration(study),
        "innovation": surprise.draw_innovation(study, history, scores),
        "misfit": misfit.draw_misfit(study, scores),
    }
    if config.network.family == "seq_vae":
        figures["elbo"] = learning.draw_elbo(study, history)
    return figures
