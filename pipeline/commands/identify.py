"""recorded runs, or a Gymnasium environment -> a folder with the field that is learned of it"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import quatrain
from pipeline.judging import drift
from pipeline.judging.render import markdown_table
from pipeline.runtime.command import Options
from pipeline.storage.params_file import read_params
from quatrain.api.results import SAVED
from quatrain.errors import ConfigError, DataError
from quatrain.frameworks.packing import flatten
from quatrain.models.active_dynamics.config import UserEnv, UserEnvTrain
from quatrain.models.active_dynamics.rules import REFERENCES
from quatrain.models.active_dynamics.user_env import data
from quatrain.storage import folders

MODEL, PRESET = "active_dynamics", "gymnasium"
# Greatest share of a reference's squared error that is left where a field is clearly better.
CLEARLY = 0.9
SCORES = ("innovation_nll", "nis", "coverage_90", "prediction_r2", "field_nrmse")


def identify(options: Options) -> None:
    """Learns the field, saves the result in place of an older one, and prints how well it explains
    held-out data.

    Raises:
        FolderError: `out` holds other files; raised before anything is learned.
        ConfigError: there are two sources or none, an option has no effect, or a value cannot be
            used.
    """
    recording, system = options.recording, options.system
    if bool(recording) == bool(system):
        raise ConfigError("give one of --recording FILE and --system NAME")
    for name, is_given in (("arm", options.arms), ("transitions", options.transitions)):
        if recording and is_given:
            raise ConfigError(
                f"--{name} is of a system that acts, and {recording} is recorded; leave it out"
            )
    env = {"kind": "recording", "path": recording}
    if system:
        env = {"kind": "gymnasium", "import" if ":" in system else "id": system}
    values = {name: value for name, value in vars(options).items() if value is not None}
    env |= {name: values[name] for name in UserEnv.model_fields if name in values}
    train = {name: values[name] for name in UserEnvTrain.model_fields if name in values}
    folders.check_free(Path(options.out), SAVED)
    if recording:
        check_recording(options.out, env, train)
    result = quatrain.fit(MODEL, PRESET, env=env, train=train)
    result.save(options.out)
    arm = result.config.shown_arm
    print(table(arm, result.scores), "", verdict(arm, result.scores), sep="\n")
    print(f"result: quatrain.load({options.out!r}), with plots() and predict()")


def check_recording(out: str, env: Mapping[str, Any], train: Mapping[str, Any]) -> None:
    """Compares a recording with that of the result in `out`, before anything is learned.

    Raises:
        DataError: it cannot be read; or it differs, and `drift` of params.yaml refuses that.
    """
    config = quatrain.config(MODEL, PRESET, env=env, train=train)
    channels = drift.channels_of(config, flatten(data.collect(config, 0)))
    learned = None
    with suppress(DataError):  # there is none, or one of another version
        old = quatrain.load(out)
        if old.model == MODEL:
            learned = drift.quantiles_of(drift.channels_of(old.config, flatten(old.dataset)))
    drift.check(out, learned, channels, read_params(Path.cwd()).drift)


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
    titles = ("on held-out transitions", "learned", *REFERENCES.values(), "if right")
    return markdown_table(titles, rows)


def verdict(arm: str, scores: Mapping[str, float]) -> str:
    """Returns a sentence: how the field predicts beside the best simple prediction, and whether its
    uncertainty is right.
    """
    learned = scores[f"prediction_r2.{arm}"]
    best = max(REFERENCES, key=lambda name: scores[f"prediction_r2_{name}"])
    reference = scores[f"prediction_r2_{best}"]
    ratio = (1 - learned) / (1 - reference) if reference < 1 else 1.0
    words = "no better" if ratio >= 1 else "better" if ratio < CLEARLY else "hardly better"
    nis, low, high = (scores[f"{name}.{arm}"] for name in ("nis", "nis_low", "nis_high"))
    calibration = "is calibrated"
    if low > 1:
        calibration = "is overconfident"
    elif high < 1:
        calibration = "expects larger errors than there are"
    return (
        f"It predicts {scores['horizon']:.0f} transitions {words} than a {REFERENCES[best]} "
        f"({learned:.3f} of their displacement against {reference:.3f}), and {calibration} "
        f"(nis {nis:.3g}, 95 % interval {low:.2g} to {high:.2g})."
    )
