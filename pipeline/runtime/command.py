"""argv -> a command's exit code, and one line on stderr if it failed.

It needs no library, so that any Python can run commands that need none.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.runtime import console
from pipeline.runtime.errors import CommandFailed, described, exit_code_of
from quatrain.storage.disk_errors import escaped

# Longest line about a failure: one that quotes a long value loses its middle.
LONGEST_LINE = 1500

Options = argparse.Namespace
Parser = argparse.ArgumentParser


class UsageError(Exception):
    """Says which options do not go together; shown below the usage like argparse's own errors."""


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    def _get_help_string(self, action: argparse.Action) -> str | None:
        names_it = "(default:" in (action.help or "")
        if names_it or action.default in (None, False, "", []):
            return action.help
        return super()._get_help_string(action)


class Command(NamedTuple):
    """Holds what `python -m MODULE` does: its options, and the work that they are passed to.

    work: returns the exit code, or None for 0. It imports what takes long to load, so that no one
    waits for that who asks for help, or whose options or params.yaml `check` refuses.
    interrupted: the line after Ctrl-C. prefix: begins the line about a failure; the name if it is
    None.
    """

    name: str
    summary: str
    work: Callable[[Options], int | None]
    add_options: Callable[[Parser], Any] = lambda _: None
    check: Callable[[Options], Any] = lambda _: None
    interrupted: str = "interrupted by SIGINT"
    prefix: str | None = None

    def __call__(self, argv: list[str] | None = None) -> int:
        parser = Parser(
            prog=f"quatrain {self.name}",
            description=self.summary,
            formatter_class=HelpFormatter,
        )
        self.add_options(parser)
        with console.drained():
            options = parser.parse_args(argv)
            try:
                return run_guarded(
                    self.name if self.prefix is None else self.prefix,
                    lambda: self._run(options),
                    self.interrupted,
                )
            except UsageError as error:
                parser.error(str(error))

    def _run(self, options: Options) -> int | None:
        self.check(options)
        return self.work(options)


def run_guarded(
    name: str, work: Callable[[], int | None], interrupted: str = "interrupted by SIGINT"
) -> int:
    """Returns the exit code of `work`; prints one line to stderr for a failure that a user can
    mend.
    """
    console.accept_any_text()
    try:
        check_folders()
        code = work() or 0
        console.flush()
        return code
    except KeyboardInterrupt:
        return report_failure(name, interrupted, 130)
    except BrokenPipeError as error:
        if error.filename is None:
            return report_failure(name, "what reads the output has left", 141)
        raise
    except Exception as error:
        code_of_error = exit_code_of(error)
        if code_of_error is None:
            raise
        return report_failure(name, described(error), code_of_error)


def check_folders() -> None:
    """Checks that there are the folders that every library asks for.

    Raises:
        CommandFailed: the current folder was removed, or the user has no home.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        raise CommandFailed(
            "the current folder was removed; go to one that is there, then run again"
        ) from None
    try:
        Path.home()
    except RuntimeError:
        raise CommandFailed(
            f"user {os.getuid()} has no home folder; set HOME to a folder, then run again"
        ) from None


def report_failure(name: str, reason: object, code: int) -> int:
    text = shortened(escaped(" ".join(str(reason).split())))
    console.info(f"{name}: {text} [exit {code}]" if name else f"{text} [exit {code}]")
    return code


def shortened(text: str) -> str:
    """Returns a text without its middle if it is too long for a line."""
    if len(text) <= LONGEST_LINE:
        return text
    return f"{text[: 2 * LONGEST_LINE // 3]} ... {text[-LONGEST_LINE // 3 :]}"
