"""a file of questions -> a file of a registered model's answers, some rows at a time"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save
from tqdm import tqdm

from pipeline.commands import question_files
from pipeline.commands.question_files import Named, Schema
from pipeline.tracking import answering
from pipeline.tracking.champions import CHAMPION
from pipeline.tracking.registry import registered_name, version_with_alias, versions_of
from pipeline.tracking.store import Unreachable, database_of, open_client, reason_of, resolve_uri
from quatrain.errors import ConfigError, DataError, QuatrainError
from quatrain.serving import MOST_QUESTIONS


class Answering(NamedTuple):
    """Holds a process that answers by a registered model, and the schema of the model."""

    process: Any
    inputs: Schema
    outputs: Schema

    def answer(self, request: Named) -> Named:
        """Raises DataError if the request does not fit."""
        with suppress(BrokenPipeError):  # the reply says why
            answering.send(self.process.stdin, b"a", save(request))
        return load(reply(self.process))


def predict(
    root: Path, model: str, preset: str, version: int | None, source: Path, target: Path
) -> None:
    """Answers the rows of `source` in the order of the file, MOST_QUESTIONS at a time as a server
    may be asked, and writes `target` when all are answered.

    Raises:
        ConfigError: there is no such version or no champion, or a name has another ending.
        DataError: the questions cannot be read, or do not fit; nothing is written.
        Unreachable: the store does not answer.
    """
    question_files.check_names(source, target)
    name = registered_name(model, preset)
    uri, number = resolve_uri(root), None
    try:
        number = version_of(uri, name, version)
    except QuatrainError:
        raise
    except Exception as error:  # of mlflow and its libraries
        raise Unreachable(f"the store {uri} does not tell {name}: {reason_of(error)}") from None
    count = 0
    with (
        served(uri, f"models:/{name}/{number}") as model_process,
        question_files.reading(source, model_process.inputs) as questions,
        question_files.writing(target, model_process.outputs) as write,
        tqdm(total=questions.total, desc=f"predict {name}", unit=" rows", disable=None) as bar,
    ):
        for request in question_files.in_chunks(questions.parts, MOST_QUESTIONS):
            rows = question_files.length(request)
            try:
                write(model_process.answer(request))
            except DataError as error:
                raise DataError(f"{source}, counted from row {count}: {error}") from None
            count += rows
            bar.update(rows)
        if not count:
            raise DataError(f"{source} has no row; give a question in each")
    print(f"predict: {target}: {count:,} answers of {name}, version {number}")


def version_of(uri: str, name: str, version: int | None) -> str:
    """Returns the number of a version that is there: the given one, or the champion.

    Raises:
        ConfigError: there is none.
        Unreachable: the store does not answer.
    """
    database = database_of(uri)
    versions: list[str] = []
    if database is None or database.exists():
        call = open_client(uri).call
        versions = [str(each.version) for each in versions_of(call, name)]
        number = version_with_alias(call, name, CHAMPION) if version is None else str(version)
        if number in versions:
            return str(number)
    what = CHAMPION if version is None else f"version {version}"
    remedy = "`make repro`, `make promote` and `make sync` make one (of a preset: PRESET=)"
    if versions:
        remedy = f"choose one by --version ({', '.join(versions[:10])})"
        remedy += "; or `make promote`, then `make sync`" if version is None else ""
    raise ConfigError(f"{name} has no {what} in {uri}", remedy=remedy)


@contextmanager
def served(uri: str, model: str) -> Iterator[Answering]:
    """Starts a process that answers by a model's own code, as a server does.

    Raises:
        DataError: it cannot be loaded.
    """
    # -I: neither this checkout's code nor the folder of the script is imported.
    command = (sys.executable, "-I", answering.__file__, model)
    pipe, variables = subprocess.PIPE, os.environ | {"MLFLOW_TRACKING_URI": uri}
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, env=variables, start_new_session=True
    ) as process:
        try:
            schema = json.loads(reply(process))
            yield Answering(process, *(read_schema(schema[part]) for part in ("inputs", "outputs")))
        finally:
            process.kill()


def read_schema(specs: dict[str, Any]) -> Schema:
    return {name: (np.dtype(dtype), tuple(shape)) for name, (dtype, shape) in specs.items()}


def reply(process: Any) -> bytes:
    """Returns the content of the next message.

    Raises:
        DataError: it says why there is none, or the process has ended.
    """
    kind, content = answering.receive(process.stdout)
    if not kind:
        raise DataError(f"the process of the model ended (status {process.wait()}); see above")
    if kind == b"e":
        raise DataError(" ".join(content.decode().split()))
    return content
