"""rows that name claims -> a verdict on each promise, and what the project makes of the same work."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from benchmarks.claims import CLAIMS, PROPOSALS, Claim
from benchmarks.kept import COMMANDS, Named
from pipeline.reporting.speed import PLAIN, Ratio, times

Word = Literal[
    "reproduced", "in part", "in doubt", "refuted", "no number to check", "not built that way", "no row", "not measured"
]  # fmt: skip
WORDS: tuple[Word, ...] = get_args(Word)
PROPOSED = "before/seed's"
"""How many times as fast the proposal's way is as what it proposes to change."""


class Judged(NamedTuple):
    """One claim: its rows in order, what each says of it, and what all of them say."""

    id: str
    claim: Claim
    rows: tuple[Named, ...]
    words: tuple[Word, ...]
    word: Word
    told: str


def judged(rows: Sequence[Named]) -> list[Judged]:
    """A verdict per claim, in the order of the proposals."""
    return [_judged(claim, [one for one in rows if claim in one.row.claims]) for claim in CLAIMS]


def of_proposal(verdicts: Sequence[Judged], proposal: str) -> list[Judged]:
    """Those on the items of one document."""
    return [one for one in verdicts if one.claim.proposal == proposal]


def _judged(claim_id: str, rows: Sequence[Named]) -> Judged:
    claim = CLAIMS[claim_id]
    words = tuple(word_of(claim, one.row.ratios) for one in rows)
    word, told = _together(claim, rows, words)
    return Judged(claim_id, claim, tuple(rows), words, word, told)


def word_of(claim: Claim, ratios: dict[str, Ratio]) -> Word:
    """What one row says: the proposal's way has the promised ratio in half of the rounds, in some, or in none."""
    if claim.least is None:
        return "no number to check"
    if PROPOSED not in ratios:
        return "not built that way"
    found = ratios[PROPOSED]
    if found.median >= claim.least:
        return "reproduced"
    return "refuted" if found.greatest < claim.least else "in doubt"


def _together(claim: Claim, rows: Sequence[Named], words: Sequence[Word]) -> tuple[Word, str]:
    """One word for all rows, and the same told; a comparison that several rows repeat counts once."""
    if not rows:
        missing = f"not measured: run `{COMMANDS[PROPOSALS[claim.proposal].model]}`"
        return ("no row", claim.no_row) if claim.no_row else ("not measured", missing)
    ways = {one.row.ratios.get(PROPOSED): word for one, word in zip(rows, words, strict=True)}
    built = [word for word in ways.values() if word != "not built that way"]
    if not built:
        return "not built that way", f"not built that way; ours: {ours(rows)}"
    if len(set(built)) == 1:
        return built[0], built[0]
    if "reproduced" not in built:
        return (
            "in doubt",
            f"refuted in {built.count('refuted')} of {len(built)} comparisons, in doubt in the others",
        )
    return "in part", f"reproduced in {built.count('reproduced')} of {len(built)} comparisons"


def ours(rows: Sequence[Named]) -> str:
    """How many times as fast as the plain reference the project is: of several rows the least and the greatest."""
    medians = sorted(one.row.ratios[PLAIN].median for one in rows if PLAIN in one.row.ratios)
    if not medians:
        return "no ratio"
    return " to ".join(times(median) for median in dict.fromkeys([medians[0], medians[-1]]))


def uncovered(rows: Sequence[Named]) -> list[str]:
    """Claims that neither a row nor a sentence answers."""
    claimed = {claim for one in rows for claim in one.row.claims}
    return [name for name, claim in CLAIMS.items() if name not in claimed and not claim.no_row]


def unknown(rows: Sequence[Named]) -> list[str]:
    """Claims that rows name and no proposal makes."""
    return sorted({claim for one in rows for claim in one.row.claims} - CLAIMS.keys())
