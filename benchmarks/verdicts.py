"""rows that name claims -> a verdict on each claim, and our gain on the same work"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from benchmarks.claims import CLAIMS, PROPOSALS, Claim
from benchmarks.result_files import COMMANDS, Named
from pipeline.reporting.speed import PLAIN, Ratio, times

Word = Literal[
    "reproduced",
    "in part",
    "in doubt",
    "refuted",
    "no number to check",
    "not built that way",
    "no row",
    "not measured",
]
WORDS: tuple[Word, ...] = get_args(Word)
PROPOSED = "before/seed's"
"""How many times as fast the proposal's way is as what it proposes to change."""


class ClaimVerdict(NamedTuple):
    """Holds one claim: its rows in order, the verdict of each, and of all together."""

    id: str
    claim: Claim
    rows: tuple[Named, ...]
    words: tuple[Word, ...]
    word: Word
    text: str


def claim_verdicts(rows: Sequence[Named]) -> list[ClaimVerdict]:
    """Returns a verdict per claim, in the order of the proposals."""
    return [_scored(claim, [item for item in rows if claim in item.row.claims]) for claim in CLAIMS]


def of_proposal(verdicts: Sequence[ClaimVerdict], proposal: str) -> list[ClaimVerdict]:
    """Returns the verdicts on the items of one document."""
    return [item for item in verdicts if item.claim.proposal == proposal]


def _scored(claim_id: str, rows: Sequence[Named]) -> ClaimVerdict:
    claim = CLAIMS[claim_id]
    words = tuple(word_of(claim, item.row.ratios) for item in rows)
    word, lines = _together(claim, rows, words)
    return ClaimVerdict(claim_id, claim, tuple(rows), words, word, lines)


def word_of(claim: Claim, ratios: dict[str, Ratio]) -> Word:
    """Returns the verdict of one row: the proposal's way reaches the promised ratio in half of the
    rounds, in some, or in none.
    """
    if claim.least is None:
        return "no number to check"
    if PROPOSED not in ratios:
        return "not built that way"
    result = ratios[PROPOSED]
    if result.median >= claim.least:
        return "reproduced"
    return "refuted" if result.greatest < claim.least else "in doubt"


def _together(claim: Claim, rows: Sequence[Named], words: Sequence[Word]) -> tuple[Word, str]:
    """Combines the verdicts of all rows; a comparison that several rows repeat counts once."""
    if not rows:
        missing = f"not measured: run `{COMMANDS[PROPOSALS[claim.proposal].model]}`"
        return ("no row", claim.no_row) if claim.no_row else ("not measured", missing)
    ways = {item.row.ratios.get(PROPOSED): word for item, word in zip(rows, words, strict=True)}
    built = [word for word in ways.values() if word != "not built that way"]
    if not built:
        return "not built that way", f"not built that way; ours: {ours(rows)}"
    if len(set(built)) == 1:
        return built[0], built[0]
    if "reproduced" not in built:
        return (
            "in doubt",
            (
                f"refuted in {built.count('refuted')} of {len(built)} comparisons, in doubt in the"
                " others"
            ),
        )
    return "in part", f"reproduced in {built.count('reproduced')} of {len(built)} comparisons"


def ours(rows: Sequence[Named]) -> str:
    """Formats how many times as fast as the plain reference the project is: of several rows the
    least and the greatest.
    """
    medians = sorted(item.row.ratios[PLAIN].median for item in rows if PLAIN in item.row.ratios)
    if not medians:
        return "no ratio"
    return " to ".join(times(median) for median in dict.fromkeys([medians[0], medians[-1]]))


def uncovered(rows: Sequence[Named]) -> list[str]:
    """Returns the claims without a row or an explanation."""
    claimed = {claim for item in rows for claim in item.row.claims}
    return [name for name, claim in CLAIMS.items() if name not in claimed and not claim.no_row]


def unknown(rows: Sequence[Named]) -> list[str]:
    """Returns the claims that rows name and no proposal makes."""
    return sorted({claim for item in rows for claim in item.row.claims} - CLAIMS.keys())
