"""Own data from the command line: a table and a file, or one line on what does not go together."""

import numpy as np
import pytest

from pipeline.cli import main
from pipeline.commands.identify import misfit_warnings
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics.test_identify import HERE, arrays


def test_a_recording_gives_a_table_and_a_file_of_the_field(project, capsys):
    np.savez(project / "runs.npz", **arrays())
    with shapes_unchecked():
        assert main(["identify", "--recording", "runs.npz"]) == 0
    rows = capsys.readouterr().out.splitlines()
    (line,) = (line for line in rows if line.startswith("| innovation_nll"))
    learned, still = (float(cell) for cell in line.split("|")[2:4])
    assert learned < still
    with np.load(project / "identified.npz") as file:
        shapes = {name: file[name].shape for name in file.files}
    assert shapes == {
        "grid": (709, 2),
        "field": (709, 2),
        "field_sd": (709, 2),
        "weight": (10, 2),
        "bias": (10,),
        "noise_variance": (10,),
    }


def test_a_system_is_named_by_its_class_and_the_file_by_an_option(project):
    options = ["--system", f"{HERE}:Cycle", "--arm", "prbs", "--transitions", "1300"]
    with shapes_unchecked():
        assert main(["identify", *options, "--out", "mine.npz"]) == 0
    assert (project / "mine.npz").exists()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "give one of --recording FILE and --system NAME"),
        (
            ["--recording", "runs.npz", "--arm", "active"],
            2,
            "--arm active: runs.npz is recorded and cannot act; leave --arm out, or give --system",
        ),
        (["--recording", "missing.npz"], 2, "missing.npz: cannot be opened (No such file"),
        (["--recording", "params.yaml"], 2, "params.yaml: "),
        (["--recording", "runs.npz", "--out", "."], 2, "--out . is a folder; name a file"),
        (["--system", "NoSuchThing-v9"], 3, "NoSuchThing-v9: "),
        (["--system", "Pendulum-v1"], 3, "an action is a vector of 2; Pendulum-v1 takes 1"),
        (["--system", "Pendulum-v1", "--transitions", "90"], 2, "is not below train.transitions"),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_does_not_go_together_has_one_line(options, code, message, capsys):
    assert main(["identify", *options]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("identify: ")
    assert message in line


GOOD = {
    "innovation_nll": -0.8,
    "innovation_nll_zero_field": 0.1,
    "nis": 1.01,
    "nis_expected_low": 0.97,
    "nis_expected_high": 1.03,
    "whiteness": 0.0,
    "whiteness_expected_low": -0.03,
    "whiteness_expected_high": 0.03,
}


def test_signs_of_misfit_have_a_line_each_on_either_side():
    assert misfit_warnings(GOOD) == []
    bad = GOOD | {"innovation_nll": 0.2, "nis": 1.5, "whiteness": 0.2}
    warned_of = [line.split()[0] for line in misfit_warnings(bad)]
    assert warned_of == ["the", "nis", "whiteness"]
    noise = "lower active_dynamics.network.bayes_filter.process_noise"
    assert misfit_warnings(GOOD | {"nis": 0.8, "whiteness": -0.1}) == [
        f"nis 0.8 is below 0.97: {noise}",
        f"whiteness -0.1 is below -0.03: {noise}",
    ]


@pytest.mark.parametrize(("nis", "whiteness", "size"), [(1.5, -0.1, "small"), (0.8, 0.2, "large")])
def test_signs_on_opposite_sides_are_those_of_wrong_channel_noise(nis, whiteness, size):
    """Process noise would have to be raised for one and lowered for the other."""
    (line,) = misfit_warnings(GOOD | {"nis": nis, "whiteness": whiteness})
    assert line == (
        f"nis {nis} and whiteness {whiteness} lie on opposite sides of their intervals: the"
        f" identified noise of channels is too {size}; scale channels to equal noise"
    )
