"""actions and visited states -> figure: first actions of each arm, and its share of time by cell"""

import numpy as np
from jaxtyping import Float, Float64
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from quatrain.models.active_dynamics.figures.parts import (
    COLORS,
    explain_arms,
    explain_replicate,
    log_ticks,
    region_border,
    set_title,
)
from quatrain.models.active_dynamics.figures.study import PLANE, Study
from quatrain.plots import caption

TRANSITIONS_SHOWN = 150
WARMUP_SHOWN = 20
# Greatest number of shown dimensions of an action.
TRACES = 4
# Distance between traces, in units of the largest action.
SPACING = 2.4
CELLS = 15
CELL_COLORS = "viridis"


def draw_actions(study: Study) -> Figure:
    """Draws the first actions of a replicate of each arm; in the plane, all replicates' visits."""
    has_maps = study.config.env.d == PLANE
    size = (13 if has_maps else 10, 2.9 * len(study.arms))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(
        len(study.arms),
        2 if has_maps else 1,
        squeeze=False,
        sharex="col",
        gridspec_kw={"width_ratios": (2.6, 1)} if has_maps else {},
    )
    for axes, arm in zip(panels[:, 0], study.arms, strict=True):
        _draw_traces(axes, study, arm)
    panels[-1, 0].set_xlabel("transition")
    if has_maps:
        _draw_visits(figure, panels[:, 1], study)
    caption(
        figure,
        "Dotted line: end of the warm-up, which all arms share.",
        explain_arms(study.arms),
        explain_replicate(study.config.seeds),
        "Maps are of all." if has_maps and study.config.seeds > 1 else "",
    )
    return figure


def _draw_traces(axes: Axes, study: Study, arm: str) -> None:
    bound = study.config.env.action_bound
    warmup = study.config.collect.warmup
    first = max(0, warmup - WARMUP_SHOWN)
    actions = study.actions[study.median_learner(arm)][first : first + TRANSITIONS_SHOWN, :TRACES]
    heights = -SPACING * bound * np.arange(actions.shape[1])
    axes.step(
        first + np.arange(len(actions)),
        actions + heights,
        where="post",
        color=COLORS[arm],
        linewidth=1.2,
    )
    for height in heights:
        axes.axhline(height, color="0.8", linewidth=0.8, zorder=0)
    axes.axvline(warmup, color="0.3", linestyle=":", linewidth=1)
    axes.set_yticks(heights, [f"a{chr(0x2081 + place)}" for place in range(len(heights))])
    axes.set_ylabel("action")
    axes.set_ylim(heights[-1] - 1.15 * bound, 1.15 * bound)
    shown = (
        "actions around the end of the warm-up" if first else f"the first {len(actions)} actions"
    )
    set_title(axes, f"{arm}: {shown}", color=COLORS[arm])


# Visits.


def cell_edges(study: Study) -> Float64[np.ndarray, " edge"]:
    """Returns the edges of cells along an axis. They cover the region and 99.8 % of all states."""
    width = 2 * study.radius / CELLS
    reach = max(study.radius, float(np.quantile(np.abs(study.path), 0.998)))
    beyond = int(np.ceil((reach - study.radius) / width))
    return study.radius + width * np.arange(-CELLS - beyond, beyond + 1)


def visit_shares(
    path: Float[np.ndarray, "learner transition d"], edges: Float64[np.ndarray, " edge"]
) -> Float64[np.ndarray, "learner x1 x2"]:
    """Returns the share of each learner's transitions that led into each cell."""
    counts = [np.histogram2d(states[:, 0], states[:, 1], bins=[edges, edges])[0] for states in path]
    return np.stack(counts) / path.shape[1]


def visited_share(study: Study, arm: str) -> float:
    """Returns the share of the region's cells that a replicate visited; mean over replicates."""
    edges = cell_edges(study)
    middle = (edges[:-1] + edges[1:]) / 2
    inside = np.hypot(middle[:, None], middle) <= study.radius
    shares = visit_shares(study.of_arm(arm, study.path), edges)
    return float((shares[:, inside] > 0).mean())


def _draw_visits(figure: Figure, panels: np.ndarray, study: Study) -> None:
    edges = cell_edges(study)
    shares = [visit_shares(study.of_arm(arm, study.path), edges).mean(0) for arm in study.arms]
    norm = LogNorm(1 / (study.path.shape[1] * study.config.seeds), float(np.max(shares)))
    for axes, arm, share in zip(panels, study.arms, shares, strict=True):
        axes.pcolormesh(
            edges, edges, np.where(share > 0, share, np.nan).T, cmap=CELL_COLORS, norm=norm
        )
        axes.add_patch(region_border(study.radius))
        title = f"{arm}: visited {visited_share(study, arm):.0%} of the region"
        set_title(axes, title, color=COLORS[arm])
        axes.set(aspect="equal", ylabel="x₂")
    panels[-1].set_xlabel("x₁")
    bar = figure.colorbar(
        ScalarMappable(norm, CELL_COLORS), ax=panels, label="share of time in a cell", shrink=0.7
    )
    log_ticks(bar.ax.yaxis)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
