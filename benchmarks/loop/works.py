"""programs that `measure` runs in processes of their own, in any revision of this project"""

TRANSITIONS = 32_768
START = """
import sys
from pathlib import Path
from pipeline.runtime import stage as runtime
from pipeline.storage.params_file import read_params
shortest = {"allo": 1, "iqn": 32, "actor_critic": 1, "active_dynamics": 1}
model = sys.argv[1]
changes = {model: {"train": {"record_every": shortest[model]}}}
def first_step(stage, signals):
    stage = stage._replace(params=read_params(Path.cwd(), None, changes))
    dataset, _ = stage.load_dataset()
    next(stage.modules.train.train(stage.config, dataset, stage.seed("train")))
sys.exit(runtime.main("train", "", first_step, [model]))
"""
"""A training up to its first record, which comes as early as it can."""
PREDICT = """
import json, sys, time
import numpy as np, quatrain
result = quatrain.load(f"models/{sys.argv[1]}")
example = result.example_request()
seconds = {}
for count in (1, 10_000):
    request = {name: np.resize(array, (count, *array.shape[1:])) for name, array in example.items()}
    size = count
    try:
        result.predict(request)
    except ValueError:  # earlier revisions take at most so many
        size = 1000
    parts = [{name: array[start:start + size] for name, array in request.items()}
             for start in range(0, count, size)]
    taken = []
    for _ in range(30):
        began = time.process_time()
        for part in parts: result.predict(part)
        taken.append(time.process_time() - began)
    seconds[count] = float(np.median(taken)) / count
print(json.dumps(seconds))
"""
"""Prints the CPU seconds of an answer, by the number of questions at once."""
OURS = f"""
import sys, gymnasium, quatrain
kind = type(gymnasium.make(sys.argv[1]).unwrapped)
step, count = kind.step, 0
def counted(*arguments):
    global count
    count += 1
    return step(*arguments)
kind.step = counted
env = {{"kind": "gymnasium", "id": sys.argv[1]}}
quatrain.fit("actor_critic", progress=False, seeds=1, env=env,
             train={{"transitions": {TRANSITIONS}}})
print(count / {TRANSITIONS} - 1)
"""
"""Collects, trains and evaluates; prints the environment's further steps, as a share."""
PEER = f"""
import sys, torch
torch.set_num_threads(1)
from stable_baselines3 import PPO
PPO("MlpPolicy", sys.argv[1], device="cpu", verbose=0).learn({TRANSITIONS})
"""
