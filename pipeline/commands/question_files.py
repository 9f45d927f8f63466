"""a .npz, .csv or .parquet file -> arrays by name, of a table some rows at a time; arrays -> such a
file

A table has a column for each number of a row: `name`, or `name.0`, `name.1`, ... of a vector, and
`name.0.1` of a matrix, row by row.
"""

import fcntl
import os
import secrets
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from quatrain.errors import ConfigError, DataError
from quatrain.serving import LONGEST_LIST, cut
from quatrain.storage.atomic_write import PARTIAL, crash_point, sweep_temporaries, sync_folder

ENDINGS = (".npz", ".csv", ".parquet")
# Bytes of a .csv file that are read at a time, and rows of a .parquet file.
CSV_BYTES, ROWS = 2**22, 10_000

Named = dict[str, np.ndarray]
# Array -> its dtype, and the shape of a row.
Schema = Mapping[str, tuple[np.dtype, tuple[int, ...]]]
Write = Callable[[Named], None]


class Questions(NamedTuple):
    """Holds the number of rows, if the file tells it, and the rows in parts of any length."""

    total: int | None
    parts: Iterator[Named]


def check_names(source: Path, target: Path) -> None:
    """Raises ConfigError or DataError unless one can be read and the other written."""
    for path in (source, target):
        if path.suffix not in ENDINGS:
            raise ConfigError(f"{path} has another ending than {', '.join(ENDINGS)}; rename it")
    if not source.is_file():
        raise DataError(f"{source} is not there; a relative path starts in {Path.cwd()}")
    if target.exists() and target.samefile(source):
        raise ConfigError(f"{target} has the questions; write the answers to another file")
    if not target.parent.is_dir():
        raise ConfigError(f"{target.parent} is no folder; make it, or write elsewhere")


def columns_of(schema: Schema) -> dict[str, list[str]]:
    """Returns the columns of each array, in C order."""
    return {
        name: [".".join(map(str, (name, *index))) for index in np.ndindex(*shape)]
        for name, (_, shape) in schema.items()
    }


def length(arrays: Named) -> int:
    return len(next(iter(arrays.values())))


def in_chunks(parts: Iterator[Named], rows: int) -> Iterator[Named]:
    """Yields the same rows, so many at a time; the last are fewer."""
    rest: Named = {}
    for part in parts:
        rest = {name: np.concatenate([rest.get(name, part[name][:0]), part[name]]) for name in part}
        while length(rest) >= rows:
            yield {name: array[:rows] for name, array in rest.items()}
            rest = {name: array[rows:] for name, array in rest.items()}
    if rest and length(rest):
        yield rest


# Reading.


@contextmanager
def reading(path: Path, schema: Schema) -> Iterator[Questions]:
    """Opens the questions.

    Raises:
        DataError: names the file, the array or column, what is wrong with it, and how to mend it;
            while it is read, too.
    """
    read = {".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}[path.suffix]
    try:
        with ExitStack() as files:
            yield read(path, schema, files)
    except (
        zipfile.BadZipFile,
        zlib.error,
        pa.ArrowException,
        EOFError,
        RuntimeError,
        ValueError,
    ) as error:
        if isinstance(error, DataError | ConfigError):
            raise
        reason = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read ({reason}); mend it, or write it again") from None


def _read_npz(path: Path, schema: Schema, files: ExitStack) -> Questions:
    archive = np.lib.npyio.NpzFile(files.enter_context(path.open("rb")))
    _check_names(path, "array", archive.files, list(schema))
    arrays = {name: _rows(path, name, archive[name]) for name in schema}
    counts = {name: len(array) for name, array in arrays.items()}
    if len({*counts.values()}) > 1:
        rows = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise DataError(f"{path} has {rows} rows; give each array a row for each question")
    return Questions(length(arrays), iter([arrays]))


def _rows(path: Path, name: str, content: Any) -> np.ndarray:
    """Returns an array of numbers in C order, as safetensors stores it."""
    array = np.asarray(content)  # bytes where the member is none
    if not array.shape or array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        kind = f"{array.dtype}{[*array.shape]}"
        raise DataError(f"{path}: {name} is {kind}; give numbers, a row a question")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def _read_csv(path: Path, schema: Schema, files: ExitStack) -> Questions:
    types = {
        column: pa.int64() if schema[name][0].kind in "iu" else pa.float64()
        for name, columns in columns_of(schema).items()
        for column in columns
    }
    reader = files.enter_context(
        pa.csv.open_csv(
            path,
            pa.csv.ReadOptions(block_size=CSV_BYTES),
            pa.csv.ParseOptions(ignore_empty_lines=False),
            convert_options=pa.csv.ConvertOptions(column_types=types, null_values=[]),
        )
    )
    _check_names(path, "column", reader.schema.names, [*types])
    return Questions(None, _arrays(path, schema, reader))


def _read_parquet(path: Path, schema: Schema, files: ExitStack) -> Questions:
    file = files.enter_context(pa.parquet.ParquetFile(path))
    columns = [column for names in columns_of(schema).values() for column in names]
    _check_names(path, "column", file.schema_arrow.names, columns)
    return Questions(file.metadata.num_rows, _arrays(path, schema, file.iter_batches(ROWS)))


def _arrays(path: Path, schema: Schema, batches: Iterator[Any]) -> Iterator[Named]:
    names = columns_of(schema)
    for batch in batches:
        yield {
            name: np.stack([_numbers(path, column, batch) for column in columns], 1).reshape(
                -1, *schema[name][1]
            )
            for name, columns in names.items()
        }


def _numbers(path: Path, column: str, batch: Any) -> np.ndarray:
    values = batch.column(column)
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if not is_number or values.null_count:
        what = "an empty cell" if is_number else str(values.type)
        raise DataError(f"{path}: column {column} has {what}; give a number in each row")
    numbers: np.ndarray = values.to_numpy(zero_copy_only=False)
    return numbers


def _check_names(path: Path, what: str, names: list[str], expected: list[str]) -> None:
    """Raises DataError unless each name is there once, and no other."""
    if sorted(names) == sorted(expected):
        return
    missing, unknown = [*{*expected} - {*names}], [*{*names} - {*expected}]
    faults = [
        f"{fault} {what} {cut(', '.join(sorted(each)), LONGEST_LIST)}"
        for fault, each in (("lacks the", missing), ("has the unknown", unknown))
        if each
    ] or [f"has a {what} twice"]
    names_of_all = cut(", ".join(expected), LONGEST_LIST)
    raise DataError(f"{path} {' and '.join(faults)}; give exactly {names_of_all}")


# Writing.


@contextmanager
def writing(path: Path, schema: Schema) -> Iterator[Write]:
    """Yields a function that adds rows. The file is there when the block ends, or as it was if it
    fails.
    """
    sweep_temporaries(path.parent, {path.name})
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    write = _write_npz if path.suffix == ".npz" else _write_table
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # alive: not swept
        with write(draft, path.suffix, schema) as add:
            yield add
        crash_point(os.fsync, descriptor)
        crash_point(os.replace, draft, path)
    finally:
        draft.unlink(missing_ok=True)
        os.close(descriptor)
    sync_folder(path.parent)


@contextmanager
def _write_table(draft: Path, ending: str, schema: Schema) -> Iterator[Write]:
    columns = columns_of(schema)
    fields = [
        (column, pa.from_numpy_dtype(schema[name][0]))
        for name, names in columns.items()
        for column in names
    ]
    schema_of_table = pa.schema(fields)
    if ending == ".csv":
        plain = pa.csv.WriteOptions(quoting_header="none")
        opened = pa.csv.CSVWriter(draft, schema_of_table, write_options=plain)
    else:
        opened = pa.parquet.ParquetWriter(draft, schema_of_table)
    with opened as writer:

        def add(arrays: Named) -> None:
            rows = [arrays[name].reshape(length(arrays), -1).T for name in columns]
            numbers = [np.ascontiguousarray(column) for part in rows for column in part]
            writer.write_batch(pa.record_batch(numbers, schema_of_table))

        yield add


@contextmanager
def _write_npz(draft: Path, _ending: str, schema: Schema) -> Iterator[Write]:
    parts: list[Named] = []
    yield parts.append
    answers: dict[str, Any] = {
        name: np.concatenate([part[name] for part in parts]) for name in schema
    }
    with draft.open("wb") as file:
        np.savez(file, **answers)
