"""recorded runs, or a Gymnasium environment -> a folder with the field that is learned of it"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import quatrain
from pipeline.judging.render import markdown_table
from quatrain.errors import ConfigError

MODEL, PRESET = "active_dynamics", "gymnasium"
SCORES = ("innovation_nll", "nis", "coverage_90", "prediction_r2", "field_nrmse")
REFERENCES = ("constant_velocity", "linear_model")


# Key of `env` or `train` -> its option, of what acts.
OF_SYSTEMS = {"action_bound": "--action-bound", "arms": "--arm"}


class Request(NamedTuple):
    """Holds the source, a recording or a system, and changes of `env` and `train`."""

    recording: str | None
    system: str | None
    env: Mapping[str, Any]
    train: Mapping[str, Any]
    out: str


def identify(request: Request) -> None:
    """Learns the field, saves the result, and prints how well it explains held-out data.

    Raises:
        FolderError: `out` holds other files; raised before anything is learned.
        ConfigError: there are two sources or none, recorded data would have to act, or a value
            cannot be used.
    """
    if bool(request.recording) == bool(request.system):
        raise ConfigError("give one of --recording FILE and --system NAME")
    unused = {*request.env, *request.train} & OF_SYSTEMS.keys()
    if request.recording and unused:
        option = OF_SYSTEMS[min(unused)]
        raise ConfigError(
            f"{option}: {request.recording} is recorded and cannot act; leave {option} out, or "
            "give --system"
        )
    env = {**source(request), **request.env}
    result = quatrain.fit(MODEL, PRESET, env=env, train=request.train, folder=request.out)
    print(table(result.config.shown_arm, result.scores), "", sep="\n")
    print(f"result: quatrain.load({request.out!r}), with plots() and predict()")


def source(request: Request) -> dict[str, Any]:
    if request.recording:
        return {"kind": "recording", "path": request.recording}
    name = str(request.system)
    return {"kind": "gymnasium", "import" if ":" in name else "id": name}


def table(arm: str, scores: Mapping[str, float]) -> str:
    """Returns the scores of an arm beside those of simple predictions, and what a right one has."""
    right = {
        "nis": f"1, within {scores[f'nis_low.{arm}']:.2g} to {scores[f'nis_high.{arm}']:.2g}",
        "coverage_90": "0.9",
        "prediction_r2": "1",
        "field_nrmse": "0",
    }
    rows = []
    for name in SCORES:
        names = [f"{name}.{arm}", *(f"{name}_{reference}" for reference in REFERENCES)]
        if names[0] in scores:
            cells = [f"{scores[each]:.4g}" if each in scores else "" for each in names]
            rows.append((name, *cells, right.get(name, "")))
    titles = (name.replace("_", " ") for name in REFERENCES)
    return markdown_table(("on held-out transitions", "learned", *titles, "if right"), rows)
