"""Own data from the command line: a table and a folder, or one line about what is wrong."""

from argparse import ArgumentTypeError

import pytest

import quatrain
from pipeline.cli import main
from pipeline.commands.verbs import matrix
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics.test_user_env import DT, log, write

COLUMNS = ("--actions", "u", "--states", "theta,omega", "--angles", "theta")


def test_a_recording_gives_a_table_and_a_result(project, capsys):
    write(project / "run.csv", log(400))
    with shapes_unchecked():
        command = ["identify", "--recording", "run.csv", *COLUMNS, "--dt", str(DT)]
        assert main([*command, "--control", "0;0;2", "--out", "mine"]) == 0
    rows = capsys.readouterr().out.splitlines()
    (line,) = (line for line in rows if line.startswith("| prediction_r2"))
    learned, still, linear = (float(cell) for cell in line.split("|")[2:5])
    assert learned > 0.9 > max(still, linear)
    config = quatrain.load(project / "mine").config
    assert config.env.control == ((0.0,), (0.0,), (2.0,))
    assert config.env.dt == DT


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "give one of --recording FILE and --system NAME"),
        (["--recording", "run.csv", "--arm", "active"], 2, "run.csv is recorded and cannot act"),
        (["--recording", "run.csv", "--action-bound", "3"], 2, "action_bound has no effect with"),
        (["--system", "Pendulum-v1", "--time", "t"], 2, "time has no effect with kind: gymnasium"),
        (["--recording", "missing.npz", "--out", "params.yaml"], 3, "params.yaml: is a file where"),
        (["--recording", "missing.npz"], 3, "missing.npz is not there; a relative path starts in"),
        (["--recording", "params.yaml"], 3, "params.yaml is neither .npz nor .csv; save it"),
        (["--system", "NoSuchThing-v9"], 3, "env NoSuchThing-v9 cannot be made"),
        (["--system", "Pendulum-v1", "--transitions", "500"], 2, "is not below train.transitions"),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_does_not_go_together_has_one_line(options, code, message, capsys):
    assert main(["identify", *options]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("identify: ")
    assert message in line


def test_a_matrix_is_written_by_rows():
    assert matrix("0, 1; -2, 3") == [[0.0, 1.0], [-2.0, 3.0]]
    with pytest.raises(ArgumentTypeError, match="write rows with ;, such as '0; 3'"):
        matrix("a")
