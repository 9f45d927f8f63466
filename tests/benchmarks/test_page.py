"""docs/benchmarks.md and its pictures from small results: every number comes from them."""

from pathlib import Path

from benchmarks import page
from benchmarks.rows import BEFORE, ORIGINAL, OURS, PEER, PROPOSAL, Claim, Results, Row, Times
from tests.benchmarks.test_rows import DRAW, MEMORY, STEP

SAMPLE = Row(
    "256 pairs",
    "us/call",
    {ORIGINAL: Times([8e-6]), PROPOSAL: Times([8e-6]), OURS: Times([2e-6], 0.25)},
    Claim("replay", "~5x | per `sample()`", 5.0),
    "ours draws many at once",
)
SLOW = DRAW._replace(sides={"torchrl 0.14": Times([1e-6]), **DRAW.sides})
LOOP = Row(
    "a whole run",
    "s",
    {BEFORE: Times([9.0]), OURS: Times([3.0]), "a peer": Times([4.0])},
    note="at most 2 s",
)
RETURNS = {OURS: Times([9.0, 8.0, 9.0]), PEER: Times([1.0, 2.0, 2.0])}
LEARNED = Row("classic: Pole", "return", RETURNS)
REFUSED = Row("classic: Words", "return", {}, note="ours: words are refused")
STORED = {
    "allo": Results({"cpu": "some CPU", "threads": "2"}, 9, [STEP, SAMPLE, MEMORY]),
    "loop": Results({"cpu": "some CPU", "threads": "2"}, 9, [LOOP]),
    "peers": Results({"cpu": "some CPU", "threads": "1"}, 9, [SLOW]),
    "environments": Results({"threads": "2"}, 9, [LEARNED, REFUSED]),
}


def cells(text: str, work: str) -> list[str]:
    """The cells of the one line of a table about a work."""
    (line,) = [line for line in text.splitlines() if line.startswith("| ") and work in line]
    return [cell.strip() for cell in line.replace(r"\|", "/").strip("|").split("|")]


def test_the_page_has_promises_ratios_notes_and_the_machine(tmp_path: Path):
    text = page.write(tmp_path, STORED).read_text()
    ratios = ["12 ms/step", "3x (2.5..3.5)", "6x (6..9)", "holds"]
    assert cells(text, "step")[1:] == ["2-3x faster training", "step", *ratios]
    sampled = ["256 pairs", "8 µs/call", "1x", "4x", "does not hold"]
    assert cells(text, "256 pairs")[1:] == [r"\~5x / per `sample()`", *sampled]
    assert cells(text, "rollout")[1:] == ["-", "rollout", "9 MB", "-", "9x", "-"]
    assert cells(text, "draw") == ["draw", "2 µs/call", "**torchrl 0.14 0.5x**<br>cpprb 4x"]
    assert cells(text, "a whole run")[1:] == ["9 s", "3 s", "a peer 4 s", "at most 2 s"]
    learned = ["3", "-", "8.67 (8..9)", "1.67 (1..2)", "-", "better"]
    assert cells(text, "classic: Pole")[1:] == learned
    assert cells(text, "classic: Words")[-1] == "ours: words are refused"
    assert "* 256 pairs: ours draws many at once" in text
    assert "* Measured with cpu some CPU, threads 2 or 1, rounds 9." in text
    for name in ("claims", "peers"):
        assert f"![{name}](benchmarks/{name}.png)" in text
        assert (tmp_path / "docs" / "benchmarks" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert cells(page.compare(STORED, STORED), "step")[-1] == "alike"
