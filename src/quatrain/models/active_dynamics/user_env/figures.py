"""state, history, held-out outcomes -> figures of what was learned of a user's system"""

from collections.abc import Mapping

import numpy as np
import torch

from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig as Config
from quatrain.models.active_dynamics.figures.study import COLORS, TRANSITIONS, explain_arms
from quatrain.models.active_dynamics.rules import REFERENCES
from quatrain.models.active_dynamics.user_env import phase_plane, regression
from quatrain.models.active_dynamics.user_env.data import Dataset, true_velocities
from quatrain.models.active_dynamics.user_env.learn import State, recorded_until, shown_learner
from quatrain.models.active_dynamics.user_env.scores import Outcome
from quatrain.plots import BLACK, GREY, Figure, Level, Line, Picture, caption, curve, in_order
from quatrain.plots import learning_curve as draw_learning_curve
from quatrain.progress import Evaluation, History

CAPTIONS = {
    "field": "What was learned? Where the state moves without actions, and how sure the learner is "
    "of it.",
    "prediction": "Does the field tell where actions lead? A held-out path, and what the field "
    "predicts of it from its first state and its actions.",
    "learning_curve": "What do more transitions tell? Surprise at held-out transitions while "
    "learning, and that of simple predictions.",
}
# States that are drawn, at most.
PANELS = 6


def draw(
    config: Config, state: State, dataset: Dataset, history: History, evaluation: Evaluation
) -> dict[str, Picture]:
    """Draws the figures of a user's system; paths are those of the first seed of each arm, the
    field is that of the arm that is served.
    """
    pictures = {
        "field": _field(config, state, dataset),
        "prediction": _prediction(config, dataset, evaluation.outcomes),
        "learning_curve": _learning_curve(config, dataset, history, evaluation.scores),
    }
    return in_order(pictures, CAPTIONS)


def _field(config: Config, state: State, dataset: Dataset) -> Figure:
    count, runs, place = int(state.transitions), dataset.train, shown_learner(config)
    model = state.params[place].model
    if state.replay is None:
        runs = runs.part(0, recorded_until(config, len(runs.ends), count))
        y, next_y = runs.obs.astype(float), runs.next_obs.astype(float)
    else:
        y, _, next_y = (part[place, :count].numpy(force=True) for part in state.replay)

    def learned(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points = torch.as_tensor(states, device=model.center.device)
        still = points.new_zeros(len(points), len(model.bound))
        velocity, deviation = regression.velocities(model, points, still)
        return velocity.numpy(force=True), deviation.numpy(force=True)

    def true(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return true_velocities(str(config.env.true_field), states), np.zeros_like(states)

    fields: dict[str, phase_plane.Field] = {f"Learned from {len(y):,} transitions": learned}
    if config.env.true_field is not None:
        fields["True field"] = true
    plane = phase_plane.make_plane(y, (next_y - y) / float(dataset.dt), dataset.state_names)
    return phase_plane.draw(plane, fields)


def _prediction(config: Config, dataset: Dataset, outcome: Outcome) -> Figure:
    shown = min(PANELS, outcome.measured.shape[1])
    figure = Figure(figsize=(9, 1.7 * shown + 0.8), layout="constrained")
    panels = figure.subplots(shown, 1, sharex=True, squeeze=False)[:, 0]
    times = float(dataset.dt) * np.arange(len(outcome.measured))
    for place, axes in enumerate(panels):
        axes.plot(times, outcome.measured[:, place], color=BLACK, linewidth=2, label="measured")
        for arm, path in zip(config.arms, outcome.predicted[:: config.seeds], strict=True):
            label = f"predicted, {arm}"
            axes.plot(times, path[:, place], "--", color=COLORS[arm], linewidth=1.5, label=label)
        axes.set_ylabel(dataset.state_names[place])
        low, high = outcome.measured[:, place].min(), outcome.measured[:, place].max()
        margin = 0.5 * (high - low) + 1e-6
        axes.set_ylim(low - margin, high + margin)
        axes.grid(alpha=0.25)
    panels[-1].set_xlabel("time")
    panels[0].legend(loc="upper left", bbox_to_anchor=(1, 1))
    caption(figure, explain_arms(config.arms))
    return figure


def _learning_curve(
    config: Config, dataset: Dataset, history: History, scores: Mapping[str, float]
) -> Figure:
    curves = [curve(history, f"monitor/held_out_nll.{arm}", config.seeds) for arm in config.arms]
    if config.env.is_recorded:
        count = len(dataset.train.ends)
        curves = [
            each._replace(
                steps=np.array([recorded_until(config, count, int(step)) for step in each.steps])
            )
            for each in curves
        ]
    lines = [Line(each, COLORS[arm], arm) for each, arm in zip(curves, config.arms, strict=True)]
    levels = [
        Level(words, scores[f"innovation_nll_{name}"], GREY) for name, words in REFERENCES.items()
    ]
    levels += [Level(arm, scores[f"innovation_nll.{arm}"], COLORS[arm]) for arm in config.arms]
    axis = "recorded transitions" if config.env.is_recorded else TRANSITIONS
    figure = draw_learning_curve(lines, levels, 1, axis, "surprise, nats per state")
    caption(figure, explain_arms(config.arms))
    return figure
