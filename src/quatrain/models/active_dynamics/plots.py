"""learner, dataset, history -> figures: how soon was the field known, what is known of it, and how surely?"""

from collections.abc import Mapping

from matplotlib.figure import Figure

from quatrain.models.active_dynamics.collect import Dataset
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.figures import actions, judged, learning, plane, surprise
from quatrain.models.active_dynamics.figures.study import PLANE, studied
from quatrain.models.active_dynamics.state import State
from quatrain.progress import History


def plots(
    config: ActiveDynamicsConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Figures of one trained active_dynamics: medians over replicates, or the replicate in their middle.

    Maps and portraits are of fields in the plane; terms of the evidence bound are of family seq_vae.
    """
    study = studied(config, state, dataset)
    figures = {
        "learning_curve": learning.draw_learning_curve(study, scores),
        "information": learning.draw_information(study, history),
        "innovation": surprise.draw_innovation(study, history, scores),
        "calibration": judged.draw_calibration(study),
        "horizon": judged.draw_horizon(study),
        "actions": actions.draw_actions(study),
    }
    if config.env.d == PLANE:
        chart = plane.charted(study)
        figures["field"] = plane.draw_field(study, chart)
        figures["uncertainty"] = plane.draw_uncertainty(study, chart)
        figures["portraits"] = plane.draw_portraits(study)
    if config.network.family == "seq_vae":
        figures["elbo"] = learning.draw_elbo(study, history)
    return figures
