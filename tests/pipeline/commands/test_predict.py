"""Files of questions: the answers are the served model's bit for bit, or one line says why not."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from pipeline.cli import main
from pipeline.commands import predict, question_files
from pipeline.commands.question_files import Named, Schema, columns_of
from pipeline.tracking.answering import schema_of
from quatrain.errors import DataError
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.tracking.served import served

# More than are asked at a time.
COUNT = 1100


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns a store with a version of a small allo, and no champion."""
    from mlflow import MlflowClient

    store = f"sqlite:///{tmp_path_factory.mktemp('a store')}/mlflow.db"
    predict.open_client(store)
    client = MlflowClient(store, store)
    client.create_registered_model("quatrain-allo")
    client.create_model_version("quatrain-allo", str(served("allo").folder))
    return store


class InThisProcess(NamedTuple):
    """Stands in for `Answering`, whose process takes seconds to start."""

    inputs: Schema
    outputs: Schema

    def answer(self, request: Named) -> Named:
        try:
            return served("allo").loaded.predict(request)
        except ValueError as error:
            raise DataError(str(error)) from None


@pytest.fixture
def place(uri: str, project: Path, monkeypatch: Patch) -> Path:
    schemas = schema_of(served("allo").loaded).values()
    stand_in = InThisProcess(*map(predict.read_schema, schemas))
    monkeypatch.setattr(predict, "served", lambda *_: nullcontext(stand_in))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return project


def cells() -> np.ndarray:
    return np.resize(served("allo").exported.request["cells"], (COUNT, 2))


def write(path: Path, columns: Named) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **columns)
    elif path.suffix == ".csv":
        pa.csv.write_csv(pa.table(columns), path)
    else:
        pa.parquet.write_table(pa.table(columns), path, row_group_size=300)
    return path


def read(path: Path) -> Named:
    if path.suffix == ".npz":
        return dict(np.load(path))
    table = pa.csv.read_csv(path) if path.suffix == ".csv" else pa.parquet.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def flat(arrays: Named) -> Named:
    shapes = {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}
    return {
        column: np.ascontiguousarray(arrays[name].reshape(len(arrays[name]), -1)[:, place])
        for name, columns in columns_of(shapes).items()
        for place, column in enumerate(columns)
    }


def ask(source: str, target: str, *options: str) -> int:
    return main(["predict", "allo", "--input", source, "--output", target, *options])


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_answers_are_those_of_the_served_model(ending: str, place: Path, capsys: Capture):
    questions = {"cells": cells()}
    write(place / f"in.{ending}", questions if ending == "npz" else flat(questions))
    assert ask(f"in.{ending}", f"out.{ending}", "--version", "1") == 0
    said = f"out.{ending}: {COUNT:,} answers of quatrain-allo, version 1"
    assert said in capsys.readouterr().out
    parts = [served("allo").loaded.predict({"cells": each}) for each in np.split(cells(), [1000])]
    expected = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    expected = expected if ending == "npz" else flat(expected)
    answers = read(place / f"out.{ending}")
    assert answers.keys() == expected.keys()
    for name, array in expected.items():
        assert answers[name].astype(array.dtype).tobytes() == array.tobytes()
        assert answers[name].dtype == array.dtype or ending == "csv"


WRONG = {
    "cells.0": ({"cells.0": [1]}, "lacks the column cells.1; give exactly cells.0, cells.1"),
    "x": ({"cells.0": [1], "cells.1": [1], "x": [1]}, "has the unknown column x; give exactly"),
    "float": ({"cells.0": [1.5], "cells.1": [1]}, "'1.5'"),
    "text": ({"cells.0": ["a"], "cells.1": [1]}, "invalid value 'a'"),
    "wall": ({"cells.0": [1, 99], "cells.1": [1, 1]}, "cells[1, 0] is 99; give whole numbers in"),
    "empty": ({"cells.0": [], "cells.1": []}, "has no row; give a question in each"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_one_line_and_the_old_answers_stay(
    case: str, place: Path, capsys: Capture
):
    columns, message = WRONG[case]
    write(place / "in.csv", {name: np.array(each) for name, each in columns.items()})
    (place / "out.csv").write_text("old")
    assert ask("in.csv", "out.csv", "--version", "1") == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("predict: in.csv")
    assert message in line
    assert {path.name for path in place.glob("*out*")} == {"out.csv"}
    assert (place / "out.csv").read_text() == "old"


@pytest.mark.parametrize(
    ("source", "target", "options", "code", "message"),
    [
        ("in.csv", "out.csv", [], 2, "quatrain-allo has no champion in sqlite:///"),
        ("in.csv", "out.csv", ["--version", "7"], 2, "no version 7 in sqlite:///"),
        ("in.txt", "out.csv", [], 2, "in.txt has another ending than .npz, .csv, .parquet"),
        ("none.csv", "out.csv", [], 3, "none.csv is not there; a relative path starts in"),
        ("in.csv", "none/out.csv", [], 2, "none is no folder; make it, or write elsewhere"),
    ],
)
def test_a_missing_champion_or_file_is_said_with_the_remedy(
    source: str,
    target: str,
    options: list[str],
    code: int,
    message: str,
    place: Path,
    capsys: Capture,
):
    write(place / "in.csv", flat({"cells": cells()}))
    assert ask(source, target, *options) == code
    err = capsys.readouterr().err
    assert message in err
    assert "by --version (1)" in err or "--version (1)" not in message


@pytest.mark.full
@pytest.mark.parametrize("form", ["allo", "iqn-user_env", "actor_critic", "active_dynamics"])
def test_a_process_of_its_own_answers_with_the_bits_of_the_served_model(form: str, uri: str):
    model = served(form)
    with predict.served(uri, str(model.folder)) as process:
        answer = process.answer(model.exported.request)
        with pytest.raises(DataError, match="give exactly"):
            process.answer({"x": np.zeros(1)})
    expected = model.loaded.predict(dict(model.exported.request))
    assert {name: array.tobytes() for name, array in answer.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }


def test_parts_of_any_length_are_cut_into_equal_ones():
    def parts() -> Iterator[Named]:
        for first, last in ((0, 1), (1, 1), (1, 8), (8, 10)):
            yield {"x": np.arange(first, last)}

    chunks = [chunk["x"].tolist() for chunk in question_files.in_chunks(parts(), 4)]
    assert chunks == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
