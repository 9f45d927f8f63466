"""options that several commands share, and their values."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.runtime.command import Parser
from pipeline.runtime.errors import ConfigError
from quatrain.registry import MODELS


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


def selected_models(names: Sequence[str]) -> list[str]:
    """Returns the models that a command line names; all of them if it names none.

    Raises:
        ConfigError: there is no such model.
    """
    unknown = sorted(set(names) - set(MODELS))
    if unknown:
        raise ConfigError(f"unknown model {unknown[0]!r}; known: {', '.join(MODELS)}")
    return list(names or MODELS)


def jobs(text: str) -> int:
    """Returns a number of jobs; `auto` is the number of cores that this process may use.

    Two models at a time on two cores were faster than one, though each has two compute threads:
    the threads of one model wait often. With a GPU it is one: models would share its memory.
    """
    if text == "auto":
        return 1 if Path("/dev/nvidia0").exists() else core_count()
    return job_count(text)


def core_count() -> int:
    """Returns how many cores this process may use; macOS tells only how many there are."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def job_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of jobs; pass 1 or more")
    return int(text)
