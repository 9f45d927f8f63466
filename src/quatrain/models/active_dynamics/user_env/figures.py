"""history, scores, held-out outcomes -> figures of what was learned of a user's system"""

from collections.abc import Mapping

import numpy as np

from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig as Config
from quatrain.models.active_dynamics.figures.study import COLORS, TRANSITIONS, explain_arms
from quatrain.models.active_dynamics.rules import REFERENCES
from quatrain.models.active_dynamics.user_env.data import Dataset
from quatrain.models.active_dynamics.user_env.scores import Outcome
from quatrain.plots import BLACK, GREY, Figure, Level, Line, Picture, caption, curve, in_order
from quatrain.plots import learning_curve as draw_learning_curve
from quatrain.progress import Evaluation, History

CAPTIONS = {
    "prediction": "Does the field tell where actions lead? A held-out path, and what the field "
    "predicts of it from its first state and its actions.",
    "learning_curve": "What do more transitions tell? Surprise at held-out transitions while "
    "learning, and that of simple predictions.",
}
# States that are drawn, at most.
PANELS = 6


def draw(
    config: Config, dataset: Dataset, history: History, evaluation: Evaluation
) -> dict[str, Picture]:
    """Draws the figures of a user's system; paths are those of the first seed of each arm."""
    prediction = _prediction(config, float(dataset.dt), evaluation.outcomes)
    learning = _learning_curve(config, history, evaluation.scores)
    return in_order({"prediction": prediction, "learning_curve": learning}, CAPTIONS)


def _prediction(config: Config, dt: float, outcome: Outcome) -> Figure:
    shown = min(PANELS, outcome.measured.shape[1])
    figure = Figure(figsize=(9, 1.7 * shown + 0.8), layout="constrained")
    panels = figure.subplots(shown, 1, sharex=True, squeeze=False)[:, 0]
    times = dt * np.arange(len(outcome.measured))
    for place, axes in enumerate(panels):
        axes.plot(times, outcome.measured[:, place], color=BLACK, linewidth=2, label="measured")
        for arm, path in zip(config.arms, outcome.predicted[:: config.seeds], strict=True):
            label = f"predicted, {arm}"
            axes.plot(times, path[:, place], "--", color=COLORS[arm], linewidth=1.5, label=label)
        axes.set_ylabel(f"state {place}")
        low, high = outcome.measured[:, place].min(), outcome.measured[:, place].max()
        margin = 0.5 * (high - low) + 1e-6
        axes.set_ylim(low - margin, high + margin)
        axes.grid(alpha=0.25)
    panels[-1].set_xlabel("time")
    panels[0].legend(loc="upper left", bbox_to_anchor=(1, 1))
    unit = "States in standard deviations of the first transitions."
    caption(figure, unit, explain_arms(config.arms))
    return figure


def _learning_curve(config: Config, history: History, scores: Mapping[str, float]) -> Figure:
    lines = [
        Line(curve(history, f"monitor/held_out_nll.{arm}", config.seeds), COLORS[arm], arm)
        for arm in config.arms
    ]
    levels = [
        Level(words, scores[f"innovation_nll_{name}"], GREY) for name, words in REFERENCES.items()
    ]
    levels += [Level(arm, scores[f"innovation_nll.{arm}"], COLORS[arm]) for arm in config.arms]
    figure = draw_learning_curve(lines, levels, 1, TRANSITIONS, "surprise, nats per state")
    caption(figure, explain_arms(config.arms))
    return figure
