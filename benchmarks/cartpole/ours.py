"""model, seed -> a line of JSON: one learner of presets/gymnasium.yaml, trained and judged"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from pipeline.runtime.stage import prepare_process
from pipeline.storage.params_file import read_params
from quatrain.devices import on_device
from quatrain.registry import MODELS, load

GOAL = 475.0
# Metric of the greedy return, and unit of `agent_steps`, of each model while it trains.
GREEDY = {"iqn": "greedy_return", "actor_critic": "validation_return"}


def train(model: str, seed: int) -> dict[str, Any]:
    """Returns the return in held-out episodes, and CPU seconds; compilation is included."""
    params = read_params(Path.cwd(), "gymnasium").model_copy(update={"threads": 1})
    prepare_process(params)
    with on_device(params, MODELS[model]):
        config = getattr(params, model).model_copy(update={"seeds": 1})
        modules = load(model, config)
        dataset = modules.collect.collect(config, seed)
        solved = None
        for progress in modules.train.train(config, dataset, seed + 100):
            greedy = progress.metrics[GREEDY[model]]
            if solved is None and len(greedy) and greedy[-1] >= GOAL:
                solved = time.process_time()
        seconds = time.process_time()
        scores = modules.evaluate.evaluate(config, progress.state, dataset, seed)
    return {
        "return_mean": scores["return_mean"],
        "solved_seconds": solved,
        "seconds": seconds,
        "transitions": int(transitions(model, config)),
    }


def transitions(model: str, config: Any) -> int:
    """Returns the number of environment steps of a training."""
    if model == "iqn":
        return config.env.worlds * (config.collect.turns + config.train.turns)
    return config.train.transitions


if __name__ == "__main__":
    print(json.dumps(train(sys.argv[1], int(sys.argv[2]))))
