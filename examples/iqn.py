"""Let three agents learn on a map drawn right here, without DVC and MLflow: python
examples/iqn.py
"""

from pathlib import Path

from ruamel.yaml import YAML

from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import evaluate
from quatrain.models.iqn.train import train

MAP = "\n".join(
    [
        "##########",
        "#A..#...A#",
        "#...#....#",
        "#..-----.#",
        "#....#...#",
        "#A...#...#",
        "##########",
    ]
)

raw = YAML(typ="safe").load(Path("params.yaml"))["iqn"]
raw["env"] |= {"height": None, "width": None, "layout": MAP, "agents": 3}
raw["network"]["hidden"] = 64
config = IqnConfig.model_validate(raw)

dataset = collect(config, seed=0)
for progress in train(config, dataset, seed=1):
    steps, returns = progress.metrics["agent_steps"], progress.metrics["greedy_return"]
    if len(returns):
        print(f"agent-steps {steps[-1]:6.0f}  return {returns[-1]:.1f}")
for name, score in evaluate(config, progress.state, dataset, seed=2).items():
    print(f"{name:24s} {score:.4f}")
