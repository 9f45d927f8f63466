"""actions and where they led -> figure: what each arm did at first, and where it spent its time."""

import numpy as np
from jaxtyping import Float, Float64
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import FuncFormatter

from quatrain.models.active_dynamics.figures.parts import COLORS, log_ticks, typical_told
from quatrain.models.active_dynamics.figures.study import PLANE, Study
from quatrain.plots import caption

TRACED, BEFORE, TRACES = 150, 20, 4
"""Transitions that are drawn, of these at most so many of the warm-up, and numbers of an action."""
SPACING = 2.4
"""Between the traces, in units of the largest action."""
CELLS = 15
"""Along the region's diameter."""
VISITS = "viridis"


def draw_actions(study: Study) -> Figure:
    """Of each arm the first actions of a replicate; in the plane, where all of its replicates have been."""
    plane, count = study.config.env.d == PLANE, len(study.arms)
    figure = Figure(figsize=(13 if plane else 10, 2.9 * count), layout="constrained")
    widths = {"width_ratios": (2.6, 1)} if plane else {}
    panels = figure.subplots(
        count, 2 if plane else 1, squeeze=False, sharex="col", gridspec_kw=widths
    )
    for axes, arm in zip(panels[:, 0], study.arms, strict=True):
        _draw_traces(axes, study, arm)
    panels[-1, 0].set_xlabel("transition")
    if plane:
        _draw_visits(figure, panels[:, 1], study)
    maps = "Maps are of all." if plane and study.config.seeds > 1 else ""
    shared = "Dotted line: end of the warm-up, which all arms share."
    caption(figure, shared, typical_told(study.config.seeds), maps)
    return figure


def _draw_traces(axes: Axes, study: Study, arm: str) -> None:
    """One trace above the other, the first on top."""
    bound, warmup = study.config.env.action_bound, study.config.collect.warmup
    first = max(0, warmup - BEFORE)
    actions = study.actions[study.typical(arm)][first : first + TRACED, :TRACES]
    heights = -SPACING * bound * np.arange(actions.shape[1])
    for place, height in enumerate(heights):
        axes.step(
            first + np.arange(len(actions)),
            actions[:, place] + height,
            where="post",
            color=COLORS[arm],
            linewidth=1.2,
        )
        axes.axhline(height, color="0.8", linewidth=0.8, zorder=0)
    axes.axvline(warmup, color="0.3", linestyle=":", linewidth=1)
    axes.set_yticks(heights, [f"a{chr(0x2081 + place)}" for place in range(len(heights))])
    axes.set_ylim(heights[-1] - 1.15 * bound, 1.15 * bound)
    axes.set_title(
        f"{arm}: actions around the end of the warm-up"
        if first
        else f"{arm}: the first {len(actions)} actions",
        loc="left",
        fontsize=10,
        color=COLORS[arm],
    )


# Where the time was spent.


def edges_of(study: Study) -> Float64[np.ndarray, " edge"]:
    """Of cells along an axis; they reach as far as the region, or as nearly all states."""
    radius = study.config.env.region_radius
    width = 2 * radius / CELLS
    reach = max(radius, float(np.quantile(np.abs(study.path), 0.998)))
    beyond = int(np.ceil((reach - radius) / width))
    return radius + width * np.arange(-CELLS - beyond, beyond + 1)


def time_spent(
    path: Float[np.ndarray, "learner transition d"], edges: Float64[np.ndarray, " edge"]
) -> Float64[np.ndarray, "learner x1 x2"]:
    """Share of each row's transitions that led into a cell."""
    found = [np.histogram2d(states[:, 0], states[:, 1], bins=[edges, edges])[0] for states in path]
    return np.stack(found) / path.shape[1]


def visited(study: Study, arm: str) -> float:
    """Share of the region's cells that a replicate of an arm has seen; mean over replicates."""
    edges, radius = edges_of(study), study.config.env.region_radius
    middle = (edges[:-1] + edges[1:]) / 2
    inside = np.hypot(middle[:, None], middle) <= radius
    return float((time_spent(study.of(arm, study.path), edges)[:, inside] > 0).mean())


def _draw_visits(figure: Figure, panels: np.ndarray, study: Study) -> None:
    """Share of time by cell, on one scale."""
    edges = edges_of(study)
    shares = {arm: time_spent(study.of(arm, study.path), edges).mean(0) for arm in study.arms}
    least = 1 / (study.path.shape[1] * study.config.seeds)
    norm = LogNorm(least, max(float(share.max()) for share in shares.values()))
    for axes, (arm, share) in zip(panels, shares.items(), strict=True):
        axes.pcolormesh(edges, edges, np.where(share > 0, share, np.nan).T, cmap=VISITS, norm=norm)
        axes.add_patch(
            Circle(
                (0, 0), study.config.env.region_radius, fill=False, edgecolor="0.3", linestyle=":"
            )
        )
        axes.set_title(
            f"{arm}: saw {visited(study, arm):.0%} of the region",
            loc="left",
            fontsize=10,
            color=COLORS[arm],
        )
        axes.set(aspect="equal", ylabel="x₂")
    panels[-1].set_xlabel("x₁")
    bar = figure.colorbar(
        ScalarMappable(norm, VISITS), ax=panels, label="share of time in a cell", shrink=0.7
    )
    log_ticks(bar.ax.yaxis)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
