"""each decoder of seq_vae -> a table of errors with planned and with random actions.

Decoders with results of the same params and code in benchmarks/results are not run again.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.judging.render import markdown_table
from pipeline.reporting.result_files import format_score, read_stored, write_lines
from pipeline.runtime import console
from pipeline.runtime.devices import settings
from pipeline.runtime.stage import prepare_process
from pipeline.storage.params_file import read_params
from pipeline.studies.training import result_key, train_and_score
from quatrain.devices import on_device
from quatrain.errors import ConfigError
from quatrain.params import Params
from quatrain.registry import MODELS
from quatrain.storage.formats import null_if_not_finite

MODEL = "active_dynamics"
PRESET = "seq_vae"
RESULTS = Path("benchmarks/results/active_dynamics_decoders.json")
COLUMNS = {
    "planned": "field_nrmse.active",
    "random": "field_nrmse.random",
    "share planned": "planned.active",
    "ratio to random": "transition_ratio.random",
}


def compare(root: Path, observations: Mapping[str, str], replicates: int) -> None:
    """Trains with each decoder, stores the result of each at once, and prints the table.

    observations: by decoder, the kind that it is made for.
    """
    by_decoder = {
        decoder: params_for(root, decoder, kind, replicates)
        for decoder, kind in observations.items()
    }
    path = root / RESULTS
    done = read_stored(path, "decoders")
    for number, (name, params) in enumerate(by_decoder.items(), 1):
        console.info(f"[{number}/{len(by_decoder)}] {name}")
        prepare_process(params)
        key = result_key("bench-decoders", params, MODEL)
        if done.get(name, {}).get("key") != key:
            with on_device(params, MODELS[MODEL]):
                done[name] = {"key": key, **run_decoder(params, name)}
            content = {**settings(params, MODELS[MODEL]), "decoders": done}
            write_lines(path, content, depth=3)
    print(table({name: done[name] for name in by_decoder}))


def params_for(root: Path, decoder: str, kind: str, replicates: int) -> Params:
    """Returns the preset with this decoder and observations of this kind.

    Raises:
        ConfigError: params.yaml cannot be used, or not with so few replicates.
    """
    if replicates < 1:
        raise ConfigError(f"--replicates {replicates}: give at least 1, and 6 for intervals")
    changes = {
        "seeds": replicates,
        "env": {"observation": {"kind": kind}},
        "network": {"decoder": decoder},
    }
    return read_params(root, PRESET, {MODEL: changes})


def run_decoder(params: Params, decoder: str) -> dict[str, Any]:
    """Trains with a decoder; returns the scores."""
    began = time.monotonic()
    scores = train_and_score(params, MODEL, decoder).scores
    config = params.active_dynamics
    return {
        "replicates": config.seeds,
        "transitions": config.train.transitions,
        "scores": null_if_not_finite(scores),
        "seconds": time.monotonic() - began,
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """Formats the scores with each decoder, with intervals if there are any."""
    lines = [
        [
            decoder,
            f"{result['replicates']}, {result['transitions']}",
            *(format_score(result["scores"], name) for name in COLUMNS.values()),
            f"{result['seconds']:.0f}",
        ]
        for decoder, result in results.items()
    ]
    return markdown_table(("decoder", "replicates, transitions", *COLUMNS, "seconds"), lines)
