"""stored rows -> verdicts on what five documents claim about the speed of other programs

Each document is about an open program that a model here reimplements. A claim quotes its words and
numbers. `least` is the weakest reading as before / after: "50 % faster" needs 1.5, "50 % less" 2;
`most` is that of a promise in seconds or bytes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from benchmarks.speed import FORM, PLAIN, PROPOSED, Measured, Results, Row, ratio
from pipeline.reporting.result_files import read_file
from quatrain.registry import MODELS

COMMANDS = {
    **{name: f"make bench BENCH={name}" for name in (*MODELS, "machine")},
    "peers": "make bench-peers",
    "iqn_to_return": "make bench-return",
}
"""Benchmark -> what measures it; in the order of the page."""
LIBRARIES = ("cpprb", "flashbax", "rejax", "stable-baselines3", "tianshou", "torch")
"""How names of other libraries begin."""

Word = Literal[
    "reproduced",
    "in part",
    "in doubt",
    "refuted",
    "no number to check",
    "not built that way",
    "needs a GPU",
    "no row",
    "not measured",
]
WORDS: tuple[Word, ...] = get_args(Word)


class Claim(NamedTuple):
    """Holds an item of a document; `least` and `most` are None without a number.

    no_row: why it is not measured. gpu: the promise is about a GPU alone.
    """

    what: str
    promised: str
    least: float | None = None
    no_row: str = ""
    most: float | None = None
    gpu: bool = False


class Proposal(NamedTuple):
    """Holds the title of a document and the model that reimplements the program it is about."""

    title: str
    model: str


PROPOSALS = {
    "allo": Proposal("Performance Optimization Proposal for exp_alcl/allo.py", "allo"),
    "replay": Proposal("Replay Buffer Vectorization: Implementation Summary", "allo"),
    "colony": Proposal(
        "Performance Optimizations Applied: delete ratio architecture", "actor_critic"
    ),
    "dynamics": Proposal("Performance Optimization Summary: active-dynamics", "active_dynamics"),
    "agents": Proposal("JAX Acceleration Opportunities for Sequential Mode: treasurehunt", "iqn"),
}
CLAIMS = {
    "allo-1": Claim("vectorise the sampling of the replay buffer", "50-70 % faster sampling", 1.5),
    "allo-2": Claim("one application of the encoder to all batches", "10-20 % faster", 1.1),
    "allo-3": Claim("plots out of the training loop", "no pauses of 5-10 s every 1000 steps"),
    "allo-4": Claim(
        "one gather of coordinates for all batches", "5-10 % faster data preparation", 1.05
    ),
    "allo-5": Claim("`@` in place of einsum", "2-5 % faster", 1.02),
    "allo-6": Claim("one transfer of all metrics", "minimal"),
    "allo-7": Claim("one identity matrix, products combined", "1-3 % faster", 1.01),
    "allo-8": Claim("jit helper functions inside the jitted step", "no number"),
    "allo-phase-1": Claim(
        "vectorised sampling and one encoder call together", "60-80 % faster", 1.6
    ),
    "allo-overall": Claim("all of it", "2-3x faster training", 2.0),
    "replay-1": Claim(
        "ends of episodes noted when an episode is added", "~5x per sample() call", 5.0
    ),
    "replay-2": Claim("masks and a sort in place of the loop", "2-3 ms become 0.5-1 ms", 2.0),
    "replay-memory": Claim("memory of the notes", "about 40 KB per 100 episodes", most=40 * 1024),
    "replay-overall": Claim("sampling of 20,000 steps", "100 s become 30 s", 3.3),
    "colony-1": Claim("argpartition for the leftmost cells", "2-3x", 2.0),
    "colony-2": Claim("a template of the reward dictionary", "1.05-1.1x", 1.05),
    "colony-3": Claim("entropy in closed form", "5-10x Monte Carlo", 5.0),
    "colony-4": Claim("advantages in preallocated tensors", "2-3x", 2.0),
    "colony-memory": Claim("less memory", "10-20 % fewer allocations", 1.1),
    "colony-overall": Claim("all four", "40-50 % faster overall", 1.4),
    "colony-amp": Claim(
        "mixed precision, not applied there", "30-50 % faster on GPUs", 1.3, gpu=True
    ),
    "colony-compile": Claim("torch.compile, not applied there", "20-30 % faster", 1.2),
    "colony-environments": Claim(
        "vectorised environments, not applied there", "10x throughput", 10.0
    ),
    "dynamics-transfer": Claim("transfers that do not wait", "25-40 % faster", 1.25, gpu=True),
    "dynamics-clone": Claim("clone only where a gradient is wanted", "30-50 % less memory", 1.43),
    "dynamics-pool": Claim("a pool of tensors", "80-90 % fewer allocations", 5.0),
    "dynamics-kl": Claim("weights of the KL terms kept", "60-80 % faster", 1.6),
    "dynamics-mask": Claim("the mask drawn into one buffer", "40-60 % less memory", 1.67),
    "dynamics-variance": Claim("the variance kept between calls", "no number"),
    "dynamics-encoder": Claim("fewer calls of the encoder", "50-70 % faster agent step", 1.5),
    "dynamics-device": Claim("the device's name compared once", "10-15 % faster", 1.1),
    "dynamics-naming": Claim(
        "`_config` in place of `_cfg`",
        "maintainability",
        no_row="a name has no speed; here one pydantic config serves all",
    ),
    "dynamics-memory": Claim("all of it", "20-40 % less memory", 1.25),
    "agents-train": Claim("forward and backward pass compiled", "2-5x training", 2.0),
    "agents-infer": Claim("inference compiled", "3-10x inference", 3.0),
    "agents-compile": Claim("what compiling costs", "about 100-200 ms once", most=0.2),
    "agents-act-together": Claim("vmap of acting over agents", "2-4x", 2.0),
    "agents-observe-together": Claim("vmap of observations over agents", "no number of its own"),
    "agents-train-together": Claim("vmap of training over agents", "2-4x", 2.0),
    "agents-sample": Claim("sampling and indexing of the buffer compiled", "2-3x", 2.0),
    "agents-device": Claim("the buffer on the device", "no number of its own"),
    "agents-loss": Claim("loss compiled", "1.5-2x", 1.5),
    "agents-stack": Claim("stacking of frames compiled", "1.5-2x", 1.5),
    "agents-observe": Claim("observation compiled", "1.2-1.5x", 1.2),
    "agents-overall": Claim("all of it", "4-12x", 4.0),
    "agents-processes": Claim(
        "in place of multiprocessing",
        "better for up to ten agents",
        no_row="no side of this project runs an agent in a process of its own",
    ),
}
"""By an id that begins with the document's name."""


class Named(NamedTuple):
    """Holds a row, its benchmark, and the device that it was measured on."""

    benchmark: str
    row: Row
    device: str

    @property
    def is_peer(self) -> bool:
        """Returns whether the row compares with another library."""
        return PLAIN in self.row.ratios and self.row.against.startswith(LIBRARIES)

    @property
    def key(self) -> str:
        """Returns a name that no other row of the benchmark has."""
        return self.row.title + (f"; before: {self.row.against}" if self.is_peer else "")


class Verdict(NamedTuple):
    """Holds one claim: its rows in order, the verdict of each, and of all together."""

    claim: Claim
    rows: Sequence[Named]
    words: Sequence[Word]
    word: Word
    text: str


def read(folder: Path) -> dict[str, Results]:
    """Reads benchmark -> results from a folder, of those that were run.

    Raises:
        DataError: a file has another form.
    """
    files = {
        name: read_file(Path(), folder / f"{name}.json", FORM, command)
        for name, command in COMMANDS.items()
    }
    return {name: results for name, results in files.items() if results is not None}


def named(results: Mapping[str, Results]) -> list[Named]:
    """Returns all rows of all benchmarks."""
    return [
        Named(benchmark, row, each.machine.device)
        for benchmark, each in results.items()
        for row in each.rows
    ]


def peers(rows: Sequence[Named]) -> dict[str, dict[str, Row]]:
    """Returns work -> library -> the row that compares it with ours."""
    works: dict[str, dict[str, Row]] = {}
    for item in rows:
        if item.is_peer:
            works.setdefault(item.row.title, {})[item.row.against] = item.row
    return works


def settings(stored: Mapping[str, Results]) -> dict[str, str]:
    """Returns what measurements depend on besides code; where they differ, with benchmarks."""
    values: dict[str, dict[str, list[str]]] = {}
    for benchmark, results in stored.items():
        fields = {**results.machine._asdict(), "rounds": str(results.rounds)}
        versions = fields.pop("versions")
        for name, text in (fields | versions).items():
            values.setdefault(name, {}).setdefault(text, []).append(benchmark)
    result = {}
    for name, texts in values.items():
        each = [f"{text} ({', '.join(benchmarks)})" for text, benchmarks in texts.items()]
        result[name] = ", ".join(each if len(texts) > 1 else texts)
    return result


def verdicts(proposal: str, rows: Sequence[Named]) -> list[Verdict]:
    """Returns a verdict per claim of a document, in its order."""
    result = []
    for name, claim in CLAIMS.items():
        if not name.startswith(f"{proposal}-"):
            continue
        its_rows = [item for item in rows if name in item.row.claims]
        words = [word_of(claim, item) for item in its_rows]
        missing = f"not measured: run `{COMMANDS[PROPOSALS[proposal].model]}`"
        word, text = ("no row", claim.no_row) if claim.no_row else ("not measured", missing)
        if its_rows:
            word, text = _together(its_rows, words)
        result.append(Verdict(claim, its_rows, words, word, text))
    return result


def word_of(claim: Claim, item: Named) -> Word:
    """Returns the verdict of one row: the proposal's way reaches the promise in half of the rounds,
    in some, or in none.
    """
    if claim.gpu and item.device != "cuda":
        return "needs a GPU"
    if claim.least is None and claim.most is None:
        return "no number to check"
    least = claim.least or 1.0
    result = item.row.ratios.get(PROPOSED)
    if claim.most is not None and item.row.seed_way:
        result = ratio(Measured([claim.most]), item.row.seed_way)
    if result is None:
        return "not built that way"
    if result.median >= least:
        return "reproduced"
    return "refuted" if result.greatest < least else "in doubt"


def _together(rows: Sequence[Named], words: Sequence[Word]) -> tuple[Word, str]:
    """Combines the verdicts of all rows; a comparison that several rows repeat counts once."""
    ways = {
        item.row.ratios.get(PROPOSED) or item.key: word
        for item, word in zip(rows, words, strict=True)
    }
    built = [word for word in ways.values() if word != "not built that way"] or list(words)
    if len(set(built)) == 1:
        return built[0], built[0]
    count = f"of {len(built)} comparisons"
    if "reproduced" in built:
        return "in part", f"reproduced in {built.count('reproduced')} {count}"
    return "in doubt", f"refuted in {built.count('refuted')} {count}, in doubt in the others"
