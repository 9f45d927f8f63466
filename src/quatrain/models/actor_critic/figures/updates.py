"""history -> a figure of updates: how far they move the policy, how good its values are"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures.training import first_and_last, transitions
from quatrain.models.actor_critic.hosted.config import HostedActorCriticConfig
from quatrain.plots import (
    GREY,
    RED,
    Curve,
    EndLabel,
    caption,
    curve,
    describe_seeds,
    draw_seeds,
    format_thousands,
    label_ends,
)
from quatrain.progress import History


def draw_updates(config: ActorCriticConfig | HostedActorCriticConfig, history: History) -> Figure:
    """Draws how far each iteration moves the policy, and how good its values are."""
    figure = Figure(figsize=(15, 6.5), layout="constrained")
    panels = figure.subplots(2, 4, sharex=True).flat
    limits = {"approx_kl": config.train.target_kl, "grad_norm": config.train.max_grad_norm}
    for axes, (name, title) in zip(panels, update_titles(config, history).items(), strict=True):
        _draw_metric(axes, curve(history, name, config.seeds), history, name)
        axes.set_title(title, loc="left", fontsize=9)
        if name in limits:
            axes.axhline(limits[name], color=GREY, linestyle="--", linewidth=1.2)
            label_ends(axes, [EndLabel(limits[name], f"{limits[name]:g}", GREY)])
        format_thousands(axes)
    deviation = curve(history, "ratio_first_max_dev", config.seeds).values.max()
    caption(
        figure,
        "Over transitions of all environments; means over an iteration's minibatches, of KL the "
        "last one. Dashed: where an iteration stops (KL), to what gradients are cut (norm). "
        f"{describe_seeds(config.seeds)}\n"
        f"Before an iteration learns, ratios of probabilities are 1; at most {deviation:.1g} off.",
    )
    return figure


def _draw_metric(axes: Axes, recorded: Curve, history: History, name: str) -> None:
    values = np.diff(recorded.values, prepend=0) if name == "updates" else recorded.values
    draw_seeds(axes, transitions(history, recorded), values, color=RED, linewidth=1.5)
    axes.grid(alpha=0.25)
    low, high = axes.dataLim.intervaly
    if name in ("loss_value", "grad_norm") and high > 10 * low > 0:
        axes.set_yscale("log")
    if name == "explained_variance":
        axes.set_ylim(max(low - 0.1, -1), 1.05)


def update_titles(
    config: ActorCriticConfig | HostedActorCriticConfig, history: History
) -> dict[str, str]:

    def values(name: str) -> np.ndarray:
        return curve(history, name, config.seeds).values

    first, last = first_and_last(values("entropy"))
    updates = values("updates")
    steps = updates[:, -1].mean() / updates.shape[1]
    most = config.train.epochs * -(-config.train.batch // config.train.minibatch_size)
    explained = first_and_last(values("explained_variance"))[1]
    return {
        "entropy": f"Entropy of actions: {first:.2f} nats at first, {last:.2f} at last",
        "approx_kl": (
            f"KL to the policy of the rollout, in nats; stopped {values('kl_stop').mean():.0%}"
        ),
        "clip_fraction": (
            f"Share of clipped ratios: {values('clip_fraction').mean():.1%} on average"
        ),
        "updates": f"Gradient steps per iteration: {steps:.1f} of {most}",
        "explained_variance": f"Explained variance of values: {explained:.2f} at last",
        "loss_value": "Value loss",
        "grad_norm": "Norm of gradients before they are cut",
        "learning_rate": f"Learning rate: {values('learning_rate').mean(0)[-1]:.2g} at last",
    }
