"""argv and exceptions -> exit codes, and one line on stderr for each failure.

It needs no library, so that any Python can run commands that need none.
"""

import argparse
import datetime
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, NamedTuple, Never

from pipeline.runtime import console
from pipeline.runtime.errors import described, exit_code_of
from quatrain.errors import ConfigError
from quatrain.storage.disk_errors import escaped

# Longest line about a failure: one that quotes a long value loses its middle.
LONGEST_LINE = 1500
# Longest part of a wrong value that is quoted.
LONGEST_VALUE = 60

Options = argparse.Namespace


class Parser(argparse.ArgumentParser):
    """Says in one line which option cannot be used, and why."""

    def error(self, message: str) -> Never:
        reason = f"{message}; `{self.prog} --help` lists the options"
        sys.exit(report_failure(self.prog, reason, 2))


Option = Callable[[Parser], Any]
Work = Callable[[Options], int | None]


class Verb(NamedTuple):
    work: Work
    options: tuple[Option, ...]
    reads_params: bool
    interrupted: str

    @property
    def summary(self) -> str:
        return " ".join((self.work.__doc__ or "").split())


VERBS: dict[str, Verb] = {}


def verb(
    *options: Option,
    reads_params: bool = True,
    interrupted: str = "interrupted by SIGINT",
    needs: str | None = None,
) -> Callable[[Work], Work]:
    """Registers a function as the verb of its name, whose help is the docstring.

    reads_params: params.yaml, with the preset that an option names, is checked first.
    interrupted: the line after Ctrl-C.
    needs: a module, or folder of one, without which a checkout has no such verb; a project of
        `quatrain init` lacks some.
    """

    def register(work: Work) -> Work:
        if needs is None or find_spec(needs):
            VERBS[work.__name__] = Verb(work, options, reads_params, interrupted)
        return work

    return register


def option(*names: str, help: str, **settings: Any) -> Option:
    """Returns an option; its help tells its default."""
    text = f"{help} (default: %(default)s)" if "default" in settings else help
    return lambda parser: parser.add_argument(*names, help=text, **settings)


def number(kind: type, least: float, most: float, what: str) -> Callable[[str], Any]:
    """Returns a type for argparse: numbers from `least` to `most`, which errors call `what`."""

    def read(text: str) -> Any:
        with suppress(ValueError):
            if least <= kind(text) <= most:
                return kind(text)
        raise argparse.ArgumentTypeError(f"{quoted(text)} is no {what}")

    return read


whole_number = number(int, 1, 10**12, "whole number; pass 1 or more")
seconds = number(float, 0, 1e6, "number of seconds; pass one from 0 to 1e+06")
margin = number(float, 0, 1e12, "margin; pass a number from 0 on")
port = number(int, 1, 65535, "port; pass a number from 1 to 65535")
_seed = number(int, 0, 2**32 - 1, "seed; pass `new` or a whole number below 2**32")


def seed(text: str) -> int:
    """Returns a seed; `new` is today's date, so that an interrupted retraining continues today."""
    return _seed(f"{datetime.datetime.now(datetime.UTC):%Y%m%d}" if text == "new" else text)


def quoted(text: str) -> str:
    """Quotes an option's value in a line of an error."""
    return repr(text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}...")


def selected_models(names: Sequence[str]) -> list[str]:
    """Returns the models that a command line names, each once; all of them if it names none.

    Raises:
        ConfigError: there is no such model.
    """
    from quatrain.registry import MODELS

    for name in names:
        if name not in MODELS:
            raise ConfigError(f"unknown model {quoted(name)}; known: {', '.join(MODELS)}")
    return list(dict.fromkeys(names or MODELS))


MODELS_OPTION = option("models", nargs="*", metavar="MODEL", help="all models if none is named")
PRESET_OPTION = option(
    "--preset", default="default", metavar="PRESET", help="a file of presets/, without .yaml"
)


def run_guarded(
    name: str, work: Callable[[], int | None], interrupted: str = "interrupted by SIGINT"
) -> int:
    """Returns the exit code of `work`; prints one line to stderr for a failure that a user can
    mend.
    """
    accept_any_text()
    try:
        code = work() or 0
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return report_failure(name, interrupted, 130)
    except BrokenPipeError as error:
        if error.filename is None:
            return report_failure(name, "what reads the output has ended", 141)
        raise
    except Exception as error:
        code_of_error = exit_code_of(error)
        if code_of_error is None:
            raise
        return report_failure(name, described(error), code_of_error)
    finally:
        drop_unwritten()


def accept_any_text() -> None:
    """Makes both streams escape what their encoding lacks, such as ± in ASCII, or a file name that
    is not UTF-8.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def drop_unwritten() -> None:
    """Drops what a full or closed output does not take: Python would try again at its end, and exit
    with 120.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def report_failure(name: str, reason: object, code: int) -> int:
    """Prints a line about a failure; returns its exit code."""
    text = escaped(" ".join(str(reason).split()))
    if len(text) > LONGEST_LINE:
        text = f"{text[: 2 * LONGEST_LINE // 3]} ... {text[-LONGEST_LINE // 3 :]}"
    console.info(f"{name}: {text} [exit {code}]")
    return code
