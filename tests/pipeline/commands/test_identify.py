"""Own data from the command line: a table and a folder, or one line about what is wrong."""

from argparse import ArgumentTypeError

import pytest

import quatrain
from pipeline.cli import main
from pipeline.commands.identify import verdict
from pipeline.commands.verbs import matrix
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics.test_user_env import DT, log, write

ENV = {"actions": ["u"], "states": ["theta", "omega"], "angles": ["theta"], "dt": DT}
COLUMNS = ("--actions", "u", "--states", "theta,omega", "--angles", "theta")


def test_a_recording_gives_a_table_and_a_result(project, capsys):
    write(project / "run.csv", log(400))
    with shapes_unchecked():
        command = ["identify", "--recording", "run.csv", *COLUMNS, "--dt", str(DT)]
        assert main([*command, "--out", "mine"]) == 0
        assert "no model of a recording in mine" in capsys.readouterr().out
        assert main([*command, "--control", "0;0;2", "--out", "mine"]) == 0  # in its place
    out, err = capsys.readouterr()
    assert "| omega " in out
    assert "warning: the recording differs" not in err
    assert "319 transitions of 1 runs to learn from; 80 transitions of 1 runs held out" in err
    assert "states cos theta, sin theta, omega; actions u" in err
    rows = out.splitlines()
    assert any(line.startswith("It predicts 20 transitions better than a linear") for line in rows)
    (line,) = (line for line in rows if line.startswith("| prediction_r2"))
    learned, still, linear = (float(cell) for cell in line.split("|")[2:5])
    assert learned > 0.9 > max(still, linear)
    config = quatrain.load(project / "mine").config
    assert config.env.control == ((0.0,), (0.0,), (2.0,))
    assert config.env.dt == DT


def test_a_recording_in_other_units_is_refused_before_anything_is_learned(project, capsys):
    with shapes_unchecked():
        quatrain.fit(
            "active_dynamics",
            env={"kind": "recording", "path": str(write(project / "run.csv", log(400))), **ENV},
        ).save(project / "mine")
    write(project / "run.csv", log(400) * [1, 1, 1, 10])
    params = (project / "params.yaml").read_text().replace("drift: warn", "drift: refuse")
    (project / "params.yaml").unlink()
    (project / "params.yaml").write_text(params)
    command = ["identify", "--recording", "run.csv", *COLUMNS, "--dt", str(DT), "--out", "mine"]
    capsys.readouterr()
    assert main(command) == 3
    out, err = capsys.readouterr()
    assert [line.split("|")[1].strip() for line in out.splitlines() if "yes" in line] == ["omega"]
    (line,) = err.splitlines()
    assert "the recording differs in omega from that of the model in mine" in line


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "give one of --recording FILE and --system NAME"),
        (
            ["--recording", "run.csv", "--arm", "active"],
            2,
            "--arm is of a system that acts, and run.csv",
        ),
        (
            ["--recording", "run.csv", "--transitions", "500"],
            2,
            "--transitions is of a system that",
        ),
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


@pytest.mark.parametrize(
    ("learned", "linear", "nis", "message"),
    [
        (0.998, 0.467, 1.1, "20 transitions better than a linear model (0.998 of their"),
        (0.518, 0.515, 1.1, "hardly better than a linear model"),
        (-3.0, -2.0, 1.1, "no better than a constant velocity (-3.000 of their displacement again"),
        (0.9, 0.5, 1.1, "and is calibrated (nis 1.1, 95 % interval 0.7 to 1.5)."),
        (0.9, 0.5, 3.0, "and is overconfident (nis 3, 95 % interval 2.6 to 3.4)."),
        (0.9, 0.5, 0.2, "and expects larger errors than there are (nis 0.2,"),
    ],
)
def test_the_verdict_compares_with_the_best_simple_prediction(learned, linear, nis, message):
    scores = {
        "horizon": 20.0,
        "prediction_r2.active": learned,
        "prediction_r2_linear_model": linear,
        "prediction_r2_constant_velocity": -1.0,
        "nis.active": nis,
        "nis_low.active": nis - 0.4,
        "nis_high.active": nis + 0.4,
    }
    assert message in verdict("active", scores)


def test_a_matrix_is_written_by_rows():
    assert matrix("0, 1; -2, 3") == [[0.0, 1.0], [-2.0, 3.0]]
    with pytest.raises(ArgumentTypeError, match="write rows with ;, such as '0; 3'"):
        matrix("a")
