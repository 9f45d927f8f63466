"""options that several commands share, and their values."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from pipeline.runtime.command import Parser
from quatrain.errors import ConfigError
from quatrain.nvidia import has_nvidia_gpu
from quatrain.registry import MODELS

MOST_DIGITS = 12
LONGEST_SECONDS = 1e6
LONGEST_VALUE = 60


def add_models(parser: Parser) -> None:
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help=f"models to work on; all of {', '.join(MODELS)} if none is named",
    )


def add_preset(parser: Parser, default: str = "default") -> None:
    parser.add_argument(
        "--preset", default=default, metavar="PRESET", help="a file of presets/, without .yaml"
    )


def add_jobs(parser: Parser, default: str | None) -> None:
    parser.add_argument(
        "--jobs",
        type=jobs,
        default=default,
        metavar="N",
        help="how many models to work on at a time; auto: as many as there are cores",
    )


def add_count(parser: Parser, name: str, help: str, default: int | None = None) -> None:
    parser.add_argument(name, type=at_least(1), default=default, metavar="N", help=help)


def add_seconds(parser: Parser, name: str, help: str, default: float, metavar: str = "N") -> None:
    parser.add_argument(name, type=seconds, default=default, metavar=metavar, help=help)


def selected_models(names: Sequence[str]) -> list[str]:
    """Returns the models that a command line names, each once; all of them if it names none.

    Raises:
        ConfigError: there is no such model.
    """
    unknown = sorted(set(names) - set(MODELS))
    if unknown:
        raise ConfigError(f"unknown model {shown(unknown[0])}; known: {', '.join(MODELS)}")
    return list(dict.fromkeys(names or MODELS))


def jobs(text: str) -> int:
    """Returns a number of jobs; `auto` is the number of cores that this process may use.

    Two models at a time on two cores were faster than one, though each has two compute threads:
    the threads of one model wait often. With a GPU it is one: models would share its memory.
    """
    if text == "auto":
        return 1 if has_nvidia_gpu() else core_count()
    return job_count(text)


def core_count() -> int:
    """Returns how many cores this process may use; macOS tells only how many there are."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def job_count(text: str) -> int:
    return _whole(text, "jobs", 1)


def at_least(least: int) -> Callable[[str], int]:
    """Returns the type of an option that counts something."""
    return lambda text: _whole(text, "them", least)


def seconds(text: str) -> float:
    """Returns a duration, which is finite and not negative."""
    with suppress(ValueError):
        if 0 <= float(text) <= LONGEST_SECONDS:
            return float(text)
    raise argparse.ArgumentTypeError(
        f"{shown(text)} is no number of seconds; pass one from 0 to {LONGEST_SECONDS:g}"
    )


def shown(text: str) -> str:
    """Quotes an option's value in a line of an error."""
    return repr(text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}...")


def _whole(text: str, what: str, least: int) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS
    if not is_number or int(text) < least:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is no number of {what}; pass {least} or more"
        )
    return int(text)
