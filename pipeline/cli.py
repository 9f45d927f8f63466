"""argv -> the work of a verb: `quatrain VERB` and `python -m pipeline VERB`, which make calls.

A verb parses and calls. It imports its work itself, so that help, wrong options and a wrong
params.yaml cost no second.
"""

import difflib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import quatrain
from pipeline.runtime.command import (
    MODELS_OPTION,
    PRESET_OPTION,
    VERBS,
    Options,
    Parser,
    Verb,
    number,
    option,
    port,
    quoted,
    report_failure,
    run_guarded,
    seed,
    selected_models,
    verb,
    whole_number,
)
from quatrain.errors import ConfigError, PackageMissing
from quatrain.seeds import SEEDS_OF_INTERVAL

# Folders whose `verbs` register more; a project of `quatrain init` has no studies.
for folder in ("pipeline.commands", "pipeline.trials", "pipeline.trials.studies"):
    if find_spec(folder):
        import_module(f"{folder}.verbs")

CHECKOUT_FILES = ("params.yaml", "dvc.yaml")
# A missing module of these is a fault of the code; of others, a package to install.
OURS = ("quatrain", "pipeline", "benchmarks")


def jobs(text: str) -> int:
    """Returns a number of jobs; `auto` is the number of cores that this process may use.

    Two models at a time on two cores were faster than one, though each has two compute threads:
    the threads of one model wait often. With a GPU it is one: models would share its memory.
    """
    if text != "auto":
        return whole_number(text)
    from pipeline.runtime.processes import core_count
    from quatrain.nvidia import has_nvidia_gpu

    return 1 if has_nvidia_gpu() else core_count()


@verb(
    MODELS_OPTION,
    PRESET_OPTION,
    option("--jobs", type=jobs, default="auto", metavar="N", help="models to work on at a time"),
    option("-v", "--verbose", action="store_true", help="print all that DVC says, too"),
    interrupted="interrupted; the next run continues",
)
def repro(options: Options) -> int:
    """Runs the stages that are out of date, then compares the scores with the baselines."""
    models = selected_models(options.models)
    from pipeline.dvc.repro import run

    return run(Path.cwd(), options.preset, models, options.jobs, options.verbose)


@verb(
    option("--jobs", type=jobs, default="auto", metavar="N", help="models to make at a time"),
    reads_params=False,
    interrupted="interrupted; `make repro` continues",
)
def back(options: Options) -> int:
    """Restores params, lock, reports, data and models of the last commit."""
    from pipeline.dvc.back import back

    return back(Path.cwd(), options.jobs)


@verb(
    MODELS_OPTION,
    PRESET_OPTION,
    option("--page", action="store_true", help="only write the table of scores of README.md"),
)
def gate(options: Options) -> int:
    """Compares the stored scores with the baselines and fails if one is worse."""
    models = selected_models(options.models)
    root = Path.cwd()
    if options.page:
        if options.models or options.preset != "default":
            raise ConfigError("--page shows all models of preset default; name none of them")
        from pipeline.reporting.scores_page import write_page

        write_page(root)
        return 0
    from pipeline.dvc.workspace import judged_workspace
    from pipeline.judging.gate import gate
    from pipeline.storage.params_file import read_params

    params = read_params(root, options.preset)
    return gate(root, judged_workspace(root, options.preset, models), models, params)


@verb(
    MODELS_OPTION,
    PRESET_OPTION,
    option("--force", action="store_true", help="worse scores and changed rules, too; needs --why"),
    option("--why", metavar="REASON", help="the reason, kept in the provenance"),
)
def promote(options: Options) -> int:
    """Stores the current scores as the baselines; runs nothing."""
    if options.force != bool((options.why or "").strip()):
        raise ConfigError("--force and --why '...' go together")
    models = selected_models(options.models)
    from pipeline.dvc.workspace import alone, judged_workspace
    from pipeline.judging.promotion import promote
    from pipeline.runtime.processes import folder_lock
    from pipeline.storage.params_file import read_params

    root, preset = Path.cwd(), options.preset
    # The entries of all presets lie in one file.
    with alone(root, preset), folder_lock(root / ".state" / "locks" / "promote"):
        params = read_params(root, preset)
        work = judged_workspace(root, preset, models)
        promote(root, work, models, params, options.why)
    return 0


@verb(
    option("model", metavar="MODEL", help="as params.yaml has it"),
    option("--version", type=whole_number, metavar="N", help="the last champion if none is given"),
    PRESET_OPTION,
    option("--why", metavar="REASON", help="kept with the baseline"),
)
def rollback(options: Options) -> None:
    """Makes an earlier version of a model the champion again, and its scores the baseline."""
    (model,) = selected_models([options.model])
    from pipeline.dvc.workspace import alone
    from pipeline.runtime.processes import folder_lock
    from pipeline.tracking.rollback import rollback

    root, preset = Path.cwd(), options.preset
    with alone(root, preset), folder_lock(root / ".state" / "locks" / "promote"):
        rollback(root, preset, model, options.version, options.why)


@verb(
    option("--from-start", action="store_true", help="send all anew; the store doubles nothing"),
    reads_params=False,
    interrupted="interrupted; what arrived is recorded, run `make sync` again",
)
def sync(options: Options) -> int:
    """Delivers pending metrics and files, and sets the aliases."""
    from pipeline.tracking.sync import sync

    return sync(Path.cwd(), options.from_start)


@verb(
    PRESET_OPTION,
    option("--seed", type=seed, metavar="N", help="in place of params.yaml's; `new`: today's date"),
    option("--jobs", type=jobs, metavar="N", help="models to work on at a time"),
    option("--push", action="store_true", help="send branch and outs to the git and DVC remotes"),
    option(
        "--compare",
        type=number(int, 0, 1024, "number of seeds; pass 4 or more, or 0"),
        default=4,
        metavar="N",
        help="of each model that changed and of its champion, at most; 0 compares nothing",
    ),
)
def retrain(options: Options) -> int:
    """Runs the pipeline again in a copy of the checkout and proposes what is better."""
    if options.preset != "default" and options.seed is not None:
        raise ConfigError("--seed goes with the default preset; the others have it in presets/")
    if 0 < options.compare < SEEDS_OF_INTERVAL:
        raise ConfigError(f"--compare {options.compare}: pass {SEEDS_OF_INTERVAL} or more, or 0")
    from pipeline.retraining.retrain import Retraining, retrain

    asked = Retraining(options.preset, options.seed, options.jobs, options.push, options.compare)
    return retrain(Path.cwd(), asked)


@verb(option("--port", type=port, default=5000, help="of the UI on 127.0.0.1"), reads_params=False)
def ui(options: Options) -> None:
    """Starts the MLflow UI for the tracking store, on this machine only."""
    from pipeline.tracking.ui import start

    start(Path.cwd(), options.port)


@verb(reads_params=False)
def verify(_options: Options) -> None:
    """Hashes DVC's cache and all outs again and compares them with dvc.lock."""
    from pipeline.dvc.verify import verify

    verify(Path.cwd())


@verb(
    option(
        "action",
        choices=("check", "preset", "schema"),
        help="check params.yaml, print it with a preset, or write the schema for editors",
    ),
    option("preset", nargs="?", default="default", help="a file of presets/, without .yaml"),
    reads_params=False,
)
def params(options: Options) -> None:
    """Checks params.yaml, prints it with a preset, or writes its JSON schema."""
    from pipeline.storage import params_file

    if options.action == "schema":
        params_file.write_schema(Path.cwd())
        return
    params_file.read_params(Path.cwd(), options.preset)
    if options.action == "preset":
        params_file.print_raw(Path.cwd(), options.preset)


@verb(
    option("name", metavar="NAME", help="of the model, in snake case: my_model"),
    option("--framework", choices=("jax", "torch"), default="jax", help="of its learner"),
    reads_params=False,
)
def new(options: Options) -> None:
    """Adds a further model to this checkout, which runs, and passes all tests, at once."""
    from pipeline.runtime.processes import folder_lock
    from pipeline.scaffolding.new_model import NEXT, create

    root = Path.cwd()
    with folder_lock(root / ".state" / "locks" / "new"):
        lines = create(root, options.name, options.framework)
    print(*lines, NEXT.format(name=options.name), sep="\n")


@verb(
    option("name", metavar="NAME", help="of the project, and of its folder here"),
    option("--model", default="allo", metavar="MODEL", help="its learner"),
    reads_params=False,
    needs="pipeline.new_project",
)
def init(options: Options) -> None:
    """Makes a project of your own in a new folder: the pipeline, and one learner."""
    (model,) = selected_models([options.model])
    from pipeline.scaffolding.new_project import NEXT, create, first_commit

    root = create(Path.cwd(), options.name, model)
    print(NEXT.format(name=options.name, model=model, commit=first_commit(root)))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb; returns its exit code and, if that is not 0, prints one line to stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else "--help"
    if name not in VERBS and not name.startswith("-"):
        near = difflib.get_close_matches(name, VERBS, n=1)
        meant = f"; did you mean {near[0]}" if near else ""
        reason = f"there is no verb {quoted(name)}{meant}; `quatrain --help` lists them"
        return report_failure("quatrain", reason, 2)
    try:
        options, unknown = parser().parse_known_args(arguments or ["--help"])
    except SystemExit as ended:
        return int(ended.code or 0)
    if unknown:
        program = f"quatrain {name}" if name in VERBS else "quatrain"
        words = quoted(" ".join(unknown))
        reason = f"unrecognized arguments: {words}; `{program} --help` lists the options"
        return report_failure(program, reason, 2)
    return run_guarded(name, lambda: run(VERBS[name], options), VERBS[name].interrupted)


def parser() -> Parser:
    """Returns the parser of all verbs."""
    program = Parser(
        prog="quatrain", description="Runs the pipeline of the checkout in this folder."
    )
    program.add_argument("--version", action="version", version=f"quatrain {quatrain.__version__}")
    below = program.add_subparsers(required=True, metavar="VERB", title="verbs")
    for name, each in sorted(VERBS.items()):
        parser_of_verb = below.add_parser(name, help=each.summary, description=each.summary)
        for add in each.options:
            add(parser_of_verb)
    return program


def run(verb: Verb, options: Options) -> int | None:
    """Checks params.yaml where the verb reads it, then does the work.

    Raises:
        PackageMissing: the libraries of the pipeline are not installed.
    """
    try:
        if verb.reads_params:
            from pipeline.storage.params_file import read_params

            read_params(Path.cwd(), getattr(options, "preset", None))
        return verb.work(options)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package in OURS:
            raise
        raise PackageMissing(
            f"{package} is not installed",
            remedy="run `make setup` in a checkout, or `pip install 'quatrain[pipeline]'`",
        ) from error


def run_in_checkout() -> int:
    """Runs `quatrain VERB` with the code of the checkout that it is called in, as make does."""
    root = Path.cwd()
    if all((root / name).is_file() for name in CHECKOUT_FILES):
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root / "src"), str(root)])
        os.execv(sys.executable, [sys.executable, "-m", "pipeline", *sys.argv[1:]])
    name, *rest = sys.argv[1:] or ["--help"]
    if name not in VERBS or name == "init" or {"-h", "--help"} & set(rest):
        return main()
    reason = f"{name} works in a checkout, and here is no {' and no '.join(CHECKOUT_FILES)}"
    return report_failure("quatrain", f"{reason}; cd to one, or git clone the repository", 2)
