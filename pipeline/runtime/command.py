"""argv -> a command's exit code, and one line on stderr if it failed.

It needs no library, so that any Python can run commands that need none.
"""

import argparse
import errno
from collections.abc import Callable
from typing import Any, NamedTuple

from pipeline.runtime import console
from pipeline.runtime.errors import exit_code_of

# Errors of a disk that is full, broken or not writable for this user.
DISK_FAILURES = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
)
DISK_EXIT_CODE = 5

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

    work: returns the exit code, or None for 0. interrupted: the line after Ctrl-C. prefix: begins
    the line about a failure; the name if it is None.
    """

    name: str
    summary: str
    work: Callable[[Options], int | None]
    add_options: Callable[[Parser], Any] = lambda _: None
    interrupted: str = "interrupted by SIGINT"
    prefix: str | None = None

    def __call__(self, argv: list[str] | None = None) -> int:
        parser = Parser(
            prog=f"quatrain {self.name}",
            description=self.summary,
            formatter_class=HelpFormatter,
        )
        self.add_options(parser)
        with console.redacted():
            options = parser.parse_args(argv)
            try:
                return run_guarded(
                    self.name if self.prefix is None else self.prefix,
                    lambda: self.work(options),
                    self.interrupted,
                )
            except UsageError as error:
                parser.error(str(error))


def run_guarded(
    name: str, work: Callable[[], int | None], interrupted: str = "interrupted by SIGINT"
) -> int:
    """Returns the exit code of `work`; prints one line to stderr for a failure that a user can
    mend.
    """
    try:
        return work() or 0
    except KeyboardInterrupt:
        return report_failure(name, interrupted, 130)
    except Exception as error:
        code = exit_code_of(error)
        if code is not None:
            return report_failure(name, error, code)
        if not isinstance(error, OSError) or error.errno not in DISK_FAILURES:
            raise
        return report_failure(
            name,
            f"cannot write {error.filename or 'a file'}: {error.strerror}; "
            "nothing half-written was left",
            DISK_EXIT_CODE,
        )


def report_failure(name: str, reason: object, code: int) -> int:
    text = " ".join(str(reason).split())
    console.info(f"{name}: {text} [exit {code}]" if name else f"{text} [exit {code}]")
    return code
