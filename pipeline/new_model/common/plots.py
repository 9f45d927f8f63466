"""state, history, scores -> pictures of what was learned."""

from quatrain.models.sketch.collect import Dataset
from quatrain.models.sketch.config import SketchConfig
from quatrain.models.sketch.train import State
from quatrain.plots import BLUE, GREY, Figure, Picture, house_style, in_order
from quatrain.progress import Evaluation, History

CAPTIONS = {"values": "Are the learned values the true ones? Then all points lie on the line."}


@house_style
def plots(
    config: SketchConfig, state: State, dataset: Dataset, history: History, evaluation: Evaluation
) -> dict[str, Picture]:
    """Draws learned against true values of held-out points, of the first seed."""
    points = slice(config.evaluate.points)
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    axes.axline((0, 0), slope=1, color=GREY)
    predicted = evaluation.outcomes[0, points]
    axes.plot(dataset.held_out.targets[points], predicted, ".", color=BLUE)
    axes.set_xlabel("true value")
    axes.set_ylabel("learned value")
    return in_order({"values": figure}, CAPTIONS)
