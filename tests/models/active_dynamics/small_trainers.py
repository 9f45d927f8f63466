"""Small trainers of seq_vae, and replays of random walks."""

from typing import Any

import torch
from torch import Generator

from quatrain.envs.vector_field.world import Emission, draw_emission
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeTrainer, init_state
from quatrain.replay import windows
from quatrain.replay.windows import WindowRing
from tests.conftest import small

DYNAMICS: dict[str, dict[str, Any]] = {
    "mlp": {"dynamics": "mlp"},
    "deep": {"dynamics": "mlp", "dynamics_hidden": [6, 4]},
    "rbf": {"dynamics": "rbf"},
    "ensemble": {"dynamics": "ensemble", "members": 3},
}
COUNTS = {"kind": "loglinear", "noise": "poisson"}


def configured(
    dynamics: str = "rbf", decoder: str = "known", **others: Any
) -> ActiveDynamicsConfig:
    """Returns a small config; others: seq_vae (of train), observation, weights (acquisition)."""
    weights = (
        {"disagreement": 1.0, "variance": 0.0} if dynamics == "ensemble" else {"variance": 1.0}
    )
    return small(
        "active_dynamics",
        env={"observation": others.get("observation", {})},
        network={"family": "seq_vae", "decoder": decoder, "seq_vae": DYNAMICS[dynamics]},
        train={
            "seq_vae": others.get("seq_vae", {}),
            "acquisition": {"weights": others.get("weights", weights)},
        },
    )


def channels(config: ActiveDynamicsConfig) -> Emission:
    """Returns the true channels."""
    return draw_emission(config.env.observation, config.env.d, Generator().manual_seed(0))


def make_trainer(config: ActiveDynamicsConfig, seed: int = 0) -> SeqVaeTrainer:
    """Returns a new trainer; RBF weights are random instead of zeros."""
    emission = channels(config)
    trainer = SeqVaeTrainer.from_state(config, emission, init_state(config, emission, seed))
    if config.network.seq_vae.dynamics == "rbf":
        with torch.no_grad():
            trainer.network.dynamics.weight.normal_(0, 0.5, generator=Generator().manual_seed(seed))
    return trainer


def replay(config: ActiveDynamicsConfig, count: int = 40, ends: tuple[int, ...] = ()) -> WindowRing:
    """Returns a random walk, which restarts after the transitions `ends`."""
    draws, emission, train = Generator().manual_seed(1), channels(config), config.train
    ring = windows.allocate(1, train.transitions, config.env.observation.channels, config.env.d)
    x = torch.zeros(1, config.env.d)
    for number in range(count):
        action = torch.rand(1, config.env.d, generator=draws) * 2 - 1
        x = 0.95 * x + 0.3 * action
        y, ended = emission.sample(x, None, draws), torch.tensor([number in ends])
        windows.write(ring, y, action, ended, train.seq_vae.length)
        x = x * (number not in ends)
    return ring
