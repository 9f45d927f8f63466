"""params.yaml is written as a person would write it."""

from pathlib import Path

from pipeline.storage.params_file import write_value

TEXT = "preset: default  # of seeds\r\nseed: 3   # of all\nallo:\n  seed: 4\n"


def test_a_number_is_set_and_every_other_character_stays(tmp_path: Path):
    path = tmp_path / "params.yaml"
    path.write_bytes(TEXT.encode())
    write_value(path, "seed", 17)
    assert path.read_bytes().decode() == TEXT.replace("seed: 3", "seed: 17")
