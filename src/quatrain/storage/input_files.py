"""a file that a config names -> its text, numbers or arrays, or one line that says what is wrong
with it.
"""

from pathlib import Path

from quatrain.errors import ConfigError
from quatrain.section import ARRAYS, NUMBERS, Content
from quatrain.storage.disk_errors import MACHINE, escaped

MAX_BYTES = 200_000


def read_content(path: Path) -> Content:
    """Returns the numbers, arrays or text of a file that a config names, by the ending of its name.

    Raises:
        ConfigError: it is missing, a folder, too large or damaged.
    """
    if path.suffix not in (ARRAYS, NUMBERS):
        return read_text(path)
    from quatrain.storage import array_files  # loads numpy, for which a text does not wait

    data = read_bytes(path)
    if path.suffix == ARRAYS:
        return array_files.parse_arrays(path.name, data)
    return array_files.parse_numbers(path.name, data)


def read_text(path: Path) -> str:
    """Returns the file's text.

    Raises:
        ConfigError: it is missing, a folder, too large or not UTF-8.
    """
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path.name}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from None


def read_bytes(path: Path) -> bytes:
    """Returns what a file holds.

    Raises:
        ConfigError: it is missing, a folder or too large.
    """
    name = escaped(path.name)
    try:
        if not path.is_file():
            reason = "is not a file" if path.exists() else "is not there"
            raise ConfigError(
                f"{name}: {reason}; run from the repository root, or `git checkout {name}`"
            )
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(f"{name}: {size:,} bytes; at most {MAX_BYTES:,} are read")
        return path.read_bytes()
    except OSError as error:
        if error.errno in MACHINE:
            raise
        raise ConfigError(f"{name[:80]}: cannot be read ({error.strerror})") from None
