"""a sweep -> its table for the terminal, and what it found in a few lines."""

import re
from collections import Counter
from collections.abc import Sequence

from tabulate import tabulate

from pipeline.scaling.labels import number, shortened, text_of
from pipeline.scaling.records import Trial
from pipeline.scaling.result import (
    UNSCORED,
    Gain,
    SweepResult,
    confirmation_of,
    count_states,
    first_runs,
    gain_of,
    has_score,
    interval_of,
    ranked,
    start_of,
    winner_of,
)

# Most rows of first runs in the terminal, beside the start.
TOP = 10
# Longest cell and reason in the terminal, in characters: a score with its interval fits.
LONGEST = 31
LONGEST_REASON = 90
# Most reasons in the terminal.
REASONS = 5
DIGITS = re.compile(r"\d+")


def table(result: SweepResult) -> str:
    """Returns the best trials, those that confirm, counts of the others, and the difference to the
    start.
    """
    shown = shown_trials(result)
    rows = [[shortened(cell, LONGEST) or "-" for cell in cells(result, trial)] for trial in shown]
    names = [shortened(name, LONGEST) for name in head(result)]
    text = tabulate(rows, names, tablefmt="simple", disable_numparse=True)
    others = [trial for trial in result.trials if trial not in shown]
    rest = [f"and {len(others)} others: {count_states(others)}"] if others else []
    lines = [*map(str.rstrip, text.splitlines()), *rest, *reason_lines(result)]
    return "\n".join([*lines, "", *outcome_lines(result)])


def shown_trials(result: SweepResult) -> list[Trial]:
    """Returns the TOP first runs, the start in any case, and then those that confirm."""
    order = in_order(result, first_runs(result))
    start = start_of(result)
    top = order[:TOP]
    if start is not None and start not in top:
        top.append(start)
    return top + in_order(result, [trial for trial in result.trials if trial.role == "confirm"])


def in_order(result: SweepResult, trials: Sequence[Trial]) -> list[Trial]:
    """Returns trials with a score, the best first, then the others: those that got furthest first.

    Watched values are not compared with scores, nor with one another: they are of other steps.
    """
    others = [trial for trial in trials if not has_score(trial)]
    states = ("finished", *UNSCORED)
    others.sort(key=lambda trial: (states.index(trial.state), -step_of(trial), trial.number))
    return ranked(result, trials) + others


def step_of(trial: Trial) -> int:
    return -1 if trial.last is None else trial.last.step


def key_labels(result: SweepResult) -> list[str]:
    """Returns the last part of each key, or the whole key where several end alike."""
    ends = Counter(key.rpartition(".")[2] for key in result.space)
    return [
        key if ends[key.rpartition(".")[2]] > 1 else key.rpartition(".")[2] for key in result.space
    ]


def head(result: SweepResult) -> list[str]:
    return [
        "trial",
        "role",
        "state",
        *key_labels(result),
        result.judge,
        f"last {result.watch}",
        "step",
        "seconds",
        "repeats",
    ]


def cells(result: SweepResult, trial: Trial) -> list[str]:
    """Returns the cells of a trial under `head`; empty ones where it has nothing."""
    last = trial.last
    return [
        trial.name,
        trial.role,
        trial.state,
        *(text_of(trial.values.get(key)) for key in result.space),
        score_text(trial) if has_score(trial) else "",
        "" if last is None else number(last.value),
        "" if last is None else str(last.step),
        f"{trial.seconds:.0f}",
        "" if trial.repeats is None else f"{trial.repeats:04d}",
    ]


def score_text(trial: Trial | None) -> str:
    """Formats `0.93 (0.91 to 0.95)`, without an interval if there is none; `-` without a score."""
    if trial is None or not has_score(trial):
        return "-"
    interval = interval_of(trial)
    if interval is None:
        return number(trial.score)
    return f"{number(trial.score)} ({number(interval[0])} to {number(interval[1])})"


def reason_lines(result: SweepResult) -> list[str]:
    """Returns why trials have no score; reasons that differ in digits alone are told once."""
    alike: dict[tuple[str, str], list[Trial]] = {}
    for trial in result.trials:
        if trial.reason:
            alike.setdefault((trial.state, DIGITS.sub("0", trial.reason)), []).append(trial)
    lines = []
    for trials in list(alike.values())[:REASONS]:
        first, *others = trials
        more = f"; alike: {', '.join(trial.name for trial in others[:3])}" if others else ""
        more += f" and {len(others) - 3} more" if len(others) > 3 else ""
        lines.append(f"{first.name} {first.state}: {shortened(first.reason, LONGEST_REASON)}{more}")
    if len(alike) > REASONS:
        lines.append(f"and {len(alike) - REASONS} other reasons")
    return lines


def outcome_lines(result: SweepResult) -> list[str]:
    """Returns the best trial, the start, and the difference, each in one line."""
    winner, start = winner_of(result), start_of(result)
    if winner is None:
        return [f"best: none, because no trial has a score of {result.judge}"]
    lines = [f"best: {_both_scores(result, winner)}"]
    if winner is start:
        return [*lines, "No values were better than those of the start."]
    if start is None:
        return lines
    return [*lines, f"start: {_both_scores(result, start)}", difference_line(result, winner)]


def _both_scores(result: SweepResult, trial: Trial) -> str:
    text = f"trial {trial.name}, {result.judge} {score_text(trial)} in the search"
    repeat = confirmation_of(result, trial)
    return text if repeat is None else f"{text}, {score_text(repeat)} when confirmed"


def difference_line(result: SweepResult, trial: Trial) -> str:
    gain = gain_of(result, trial)
    if gain is None:
        return "difference: none, because the start has no score"
    seeds = "one seed" if gain.seeds == 1 else f"{gain.seeds} seeds"
    notes = {
        None: f"{seeds}: no interval; cannot tell from chance",
        True: "more than chance",
        False: "may be chance",
    }
    where = "when confirmed" if gain.is_confirmed else "in the search, where the best is also lucky"
    return f"difference: {gain_text(gain)} {where}; {notes[gain.is_clear]}"


def gain_text(gain: Gain) -> str:
    """Formats `0.012 ± 0.034 better`."""
    half = "" if gain.half is None else f" ± {gain.half:.2g}"
    return f"{abs(gain.value):.4g}{half} {'better' if gain.value >= 0 else 'worse'}"
