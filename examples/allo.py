"""Learns the eigenvectors of the map below, without DVC and MLflow: python examples/allo.py"""

from pathlib import Path

from ruamel.yaml import YAML

from quatrain.models.allo.collect import collect
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.evaluate import evaluate
from quatrain.models.allo.train import train

MAP = "\n".join(
    [
        "XXXXXXXXX",
        "X...X...X",
        "X.......X",
        "X...X...X",
        "XX.XXX.XX",
        "X...X...X",
        "X...X...X",
        "XXXXXXXXX",
    ]
)

raw = YAML(typ="safe").load(Path("params.yaml"))["allo"]
raw["env"]["layout"] = {"name": "two halls", "text": MAP}
raw["network"]["d"] = 6
raw["train"] |= {"steps": 5000, "evaluate_every": 500}
config = AlloConfig.model_validate(raw)

dataset = collect(config, seed=0)
for progress in train(config, dataset, seed=1):
    if len(progress.metrics["cosine_mean"]):
        print(f"step {progress.step:5d}  cosine {progress.metrics['cosine_mean'][-1]:.4f}")
for name, score in evaluate(config, progress.state, dataset, seed=2).items():
    print(f"{name:32s} {score:.4f}")
