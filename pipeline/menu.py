"""`quatrain VERB` -> `python -m pipeline.commands.VERB` with the code of the checkout in which one
calls it, as make does.
"""

import ast
import difflib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Never

import quatrain
from pipeline import commands
from pipeline.runtime.command import report_failure

CHECKOUT_FILES = ("params.yaml", "dvc.yaml")
NEEDED = ("dvc", "flax", "gymnasium", "jax", "mlflow", "tabulate", "torch")
HELP = ("-h", "--help")
ABOUT = """usage: quatrain VERB [OPTION ...]

Runs the pipeline of a checkout: be in its folder. `quatrain VERB --help` tells a verb's options.
"""


def main(argv: list[str] | None = None) -> int:
    """Replaces this process by the verb's; returns an exit code where there is nothing to run."""
    verb, *options = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if verb == "--version":
        print(f"quatrain {quatrain.__version__}")
        return 0
    verbs = summaries()
    if verb in HELP:
        print(ABOUT)
        print("\n".join(f"  {name:<10} {summary}" for name, summary in verbs.items()))
        return 0
    place = None if set(options) & set(HELP) else Path.cwd()
    reason = refusal(verb, list(verbs), place)
    if reason:
        return report_failure("quatrain", reason, 2)
    run(verb, options, Path.cwd())


def summaries() -> dict[str, str]:
    """Returns each verb's one line, read from its source: loading all of them takes seconds."""
    files = sorted(Path(commands.__path__[0]).glob("[a-z]*.py"))
    return {path.stem: " ".join(summary_in(path.read_text()).split()) for path in files}


def summary_in(source: str) -> str:
    """Returns the summary of the one Command that a module makes."""
    keywords = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.keyword))
    return next(str(ast.literal_eval(each.value)) for each in keywords if each.arg == "summary")


def refusal(verb: str, verbs: list[str], folder: Path | None) -> str:
    """Returns why a verb cannot run in a folder, and what to do; empty if it can.

    Help is told anywhere: folder is None.
    """
    if verb not in verbs:
        near = difflib.get_close_matches(verb, verbs, n=1)
        meant = f"; did you mean {near[0]}" if near else ""
        return f"there is no verb {verb!r}{meant}; `quatrain --help` lists them"
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        return (
            f"{verb} needs {', '.join(missing)}: pip install 'quatrain[pipeline]', "
            "or `make setup` in a checkout"
        )
    if folder is None or is_checkout(folder):
        return ""
    above = next((parent for parent in folder.parents if is_checkout(parent)), None)
    remedy = f"cd {above}" if above else "git clone the repository, and run it in that folder"
    return f"{verb} works in a checkout, and here is no {' and no '.join(CHECKOUT_FILES)}; {remedy}"


def is_checkout(folder: Path) -> bool:
    """Tells whether a folder holds what the pipeline runs on."""
    return all((folder / name).is_file() for name in CHECKOUT_FILES)


def run(verb: str, options: list[str], folder: Path) -> Never:
    """Replaces this process by a verb's, with this Python and the checkout's code."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder / "src"), str(folder)])
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.execv(sys.executable, [sys.executable, "-m", f"pipeline.commands.{verb}", *options])


if __name__ == "__main__":
    sys.exit(main())
