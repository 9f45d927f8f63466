"""a recording, and quantiles of the accepted model's -> a table of how their channels differ

Rows of a time series depend on one another, so that the p-value of a two-sample test finds any two
recordings different. A channel differs by the distance of its distributions (the statistic of
Kolmogorov and Smirnov), or the share of rows outside of what was learned from. Either is allowed
to be as large as that of equal systems is by chance, which the number of independent rows tells.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from pipeline.judging.baseline_files import damaged, read_baseline
from pipeline.judging.render import markdown_table
from pipeline.runtime import console
from quatrain.baselines import BaselineError, preset_of
from quatrain.errors import DataError
from quatrain.params import Params
from quatrain.storage import folders

# Least distance and share that count.
DISTANCE, OUTSIDE = 0.15, 0.1
# Those that chance exceeds once in a thousand, for one independent row.
CHANCE_DISTANCE, CHANCE_OUTSIDE = 1.95, 5.0
# Relative difference up to which constants are equal.
SAME = 1e-5
# Most numbers that stand for a channel, as many as there are independent rows.
FEWEST, MOST = 3, 101
DATASET = "dataset.safetensors"
HEAD = ("channel", "learned from", "recording", "KS distance", "outside", "differs")

Channels = Mapping[str, Float32[np.ndarray, " row"]]
Quantiles = Mapping[str, Sequence[float]]


class Row(NamedTuple):
    """Holds what differs in a channel, and its cells of HEAD."""

    differs: bool
    cells: tuple[str, ...]


def channels_of(config: Any, arrays: Mapping[str, np.ndarray]) -> Channels:
    """Returns the numbers of a flattened dataset to learn from, by channel; none if it is not
    recorded.
    """
    if not config.is_recorded:
        return {}
    if "names" in arrays:  # of active_dynamics
        actions = arrays["train/actions"]
        names = arrays["names"].tobytes().decode().split("\n")
        names += config.env.actions or [f"action {place}" for place in range(actions.shape[1])]
        columns = np.concatenate([arrays["train/obs"], actions], 1)
    else:
        columns = arrays["table/observations"][arrays["train/state"]]
        names = config.env.columns or [f"observation {place}" for place in range(columns.shape[1])]
    return dict(zip(names, columns.T, strict=True))


def quantiles_of(channels: Channels) -> dict[str, list[float]]:
    """Returns numbers that stand for a channel, from its least to its most: as many as it has
    independent rows, at most MOST.
    """
    return {name: _quantiles(values) for name, values in channels.items()}


def _quantiles(values: Float32[np.ndarray, " row"]) -> list[float]:
    levels = np.linspace(0, 1, independent_rows(values))
    # The shortest decimals that are these numbers of 32 bits.
    return [float(str(each)) for each in np.quantile(values, levels, method="inverted_cdf")]


def independent_rows(values: Float32[np.ndarray, " row"]) -> int:
    """Returns the rows divided by the time over which they depend on one another: 1 + 2 sum of the
    autocorrelation to its first zero. FEWEST to MOST.
    """
    centred = values - values.mean(dtype=float)
    count = len(values)
    covariance = np.fft.irfft(np.abs(np.fft.rfft(centred, 2 * count)) ** 2)[:count]
    if covariance[0] <= 0:  # a constant, which is exactly known
        return MOST
    correlation = covariance / covariance[0]
    zero = int(np.argmax(correlation <= 0)) or count
    rows = count / max(1.0, 2 * correlation[:zero].sum() - 1)
    return int(np.clip(rows, FEWEST, MOST))


def rows_of(learned: Quantiles, channels: Channels) -> list[Row]:
    """Compares the channels of both, those of `learned` first."""
    return [
        _row(name, learned.get(name), channels.get(name))
        for name in dict.fromkeys([*learned, *channels])
    ]


def _row(name: str, quantiles: Sequence[float] | None, values: np.ndarray | None) -> Row:
    from scipy.stats import ks_2samp  # who reads help does not wait for it

    ends = [_range(numbers) for numbers in (quantiles, values)]
    if quantiles is None or values is None:
        return Row(True, (name, *ends, "", "", "yes"))
    learned = np.asarray(quantiles, np.float32)
    if learned[0] == learned[-1] and np.allclose(values, learned[0], rtol=SAME):
        return Row(False, (name, *ends, "", "", ""))  # a constant, up to its rounding
    distance = float(ks_2samp(learned, values, method="asymp").statistic)
    outside = float(((values < learned[0]) | (values > learned[-1])).mean())
    chance = 1 / len(learned) + 1 / independent_rows(values)
    farthest = max(DISTANCE, CHANCE_DISTANCE * chance**0.5)
    most = max(OUTSIDE, CHANCE_OUTSIDE * chance)
    differs = distance > farthest or outside > most
    measured = f"{distance:.2f} (to {farthest:.2f})", f"{outside:.1%} (to {most:.0%})"
    return Row(differs, (name, *ends, *measured, "yes" if differs else ""))


def _range(numbers: Sequence[float] | np.ndarray | None) -> str:
    return "not there" if numbers is None else f"{min(numbers):.4g} to {max(numbers):.4g}"


def accepted(root: Path, model: str, params: Params) -> Quantiles | None:
    """Returns the quantiles that the baseline of a preset has; None if there are none.

    Raises:
        DataError: the baseline cannot be read.
    """
    try:
        baseline = preset_of(read_baseline(root, model), params.preset)
    except BaselineError as error:
        raise damaged(model, f"baselines/{model}.json: {error}") from None
    recording: Any = baseline and baseline.provenance.get("recording")
    return recording


def recording_part(work: Path, model: str, config: Any) -> dict[str, dict[str, list[float]]]:
    """Returns what provenance has of the recording that data/MODEL is of, its quantiles; nothing
    where it is of no recording, or not there.
    """
    folder = work / "data" / model
    if not config.is_recorded or not folder.exists():
        return {}
    arrays = folders.load(folder, [DATASET]).contents[DATASET]
    return {"recording": quantiles_of(channels_of(config, arrays))}


def check(place: str, learned: Quantiles | None, channels: Channels, action: str) -> None:
    """Prints how a recording differs from what a model was learned from, and a warning if it does.

    place: what the model is of. action: `drift` of params.yaml.

    Raises:
        DataError: it differs, and the action is `refuse`.
    """
    if not learned:
        print(f"recording: no model of a recording in {place}: nothing to compare it with")
        return
    rows = rows_of(learned, channels)
    print(markdown_table(HEAD, [row.cells for row in rows]))
    if not (names := [row.cells[0] for row in rows if row.differs]):
        return
    reason = f"the recording differs in {', '.join(names)} from that of the model in {place}"
    remedy = "see the table; mend units, columns or sensors, or learn from it with drift: warn"
    if action == "refuse":
        raise DataError(reason, remedy=remedy)
    console.info(f"warning: {reason}; {remedy.partition(', or')[0]} unless that is meant")
