"""each model's default preset over seeds -> the table in docs/results.md."""

import math
from pathlib import Path

from pipeline.judging.gate import rules_of
from pipeline.judging.render import markdown_table, plain
from pipeline.reporting.scores_page import between_marks
from pipeline.runtime.command import Options
from pipeline.storage.params_file import read_params
from pipeline.trials import study
from pipeline.trials.study import Result, Results, Row, Study, format_score
from quatrain.baselines import Rule
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import read_text

FILE = Path("benchmarks/results/seeds.json")
PAGE = Path("docs/results.md")
BEGIN = "<!-- Made by `make results`. -->"
END = "<!-- End of what `make results` makes. -->"


def results(root: Path, options: Options) -> Study:
    """Trains each model with so many seeds, or more if params.yaml has them."""
    write_page(root)  # a page without a place for the table costs no training
    rows = {}
    for model in options.models:
        seeds = max(options.seeds, getattr(read_params(root), model).seeds)
        trial = study.varied(root, model, None, {"seeds": seeds})
        rows[model] = Row([trial], {"seeds": seeds})
    return Study(rows, FILE, lambda _: write_page(root))


def write_page(root: Path) -> str:
    """Writes the table of all stored results into the page, and returns it.

    Raises:
        DataError: the page has no place for it, or the results have another form.
    """
    text = render(study.read_results(root, FILE))
    page = between_marks(read_text(root / PAGE), text, BEGIN, END, str(PAGE))
    write_durably(root / PAGE, page.encode())
    return text


def render(results: Results) -> str:
    """Renders a line for each judged metric, and the machines."""
    if not results:
        return "Not measured yet: run `make results`."
    lines = [
        {"model": plain(model), **cells(rule, result)}
        for model, result in results.items()
        for rule in rules_of(model, "default")
    ]
    table = markdown_table(list(lines[0]), [list(line.values()) for line in lines])
    machines = sorted({plain(result.machine["cpu"]) for result in results.values()})
    return f"{table}\n\nSeconds of training, of all threads, on {', '.join(machines)}."


def cells(rule: Rule, result: Result) -> dict[str, str]:
    """Returns the cells of a metric: its interquartile mean, or the median of replicates."""
    (outcome,), seeds, metric = result.outcomes, result.facts["seeds"], rule.metric
    scores = outcome.scores
    center = f"{metric}_iqm" if f"{metric}_iqm" in scores else metric
    ends = [format_score(scores, f"{metric}_{end}") for end in ("least", "greatest")]
    stem, _, arm = metric.partition(".")
    arms = [f"{stem}.{other}" for other in ("prbs", "random") if arm and other != arm]
    names = [*rule.references, *arms]
    goal = [] if rule.goal is None else [f"goal {rule.goal:g}"]
    beside = [f"{plain(name)} {scores[name]:.4g}" for name in names if scores.get(name) is not None]
    return {
        "metric (better)": f"{plain(metric)} ({rule.direction})",
        "seeds": str(seeds),
        "score (95 % interval)": format_score(scores, center),
        "lowest to highest seed": " to ".join(dict.fromkeys(ends)),
        "beside it": "<br>".join([*goal, *beside]) or "-",
        "CPU seconds per seed": f"{outcome.cpu_seconds.get('train', math.nan) / seeds:.3g}",
    }
