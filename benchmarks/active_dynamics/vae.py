"""config -> sequential VAEs of the project and plain, of equal weights; refused if they differ"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from benchmarks.active_dynamics.sides import Sides, Walk
from benchmarks.reference import active_dynamics as plain
from benchmarks.table import NotTheSame
from quatrain.models.active_dynamics.collect import emission_of
from quatrain.models.active_dynamics.seq_vae import elbo
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeTrainer, init_state
from quatrain.replay import windows
from quatrain.replay.windows import Entry, WindowRing, Windows

SEED = 0
WINDOWS = 64
"""Windows of the replay. Its 83 transitions are no multiple of 50: no posterior is recomputed
while steps are timed.
"""
SAME_WORK: dict[str, Any] = {
    "window": 20,
    "burn_in": 0,
    "samples": 5,
    "horizons": 5,
    "updates": 1,
    "anneal_kind": "none",
    "warmup": 0,
    "beta": 1.0,
    "optimizer": "adam",
    "weight_decay": 0.0,
    "mask": 0.0,
    "min_windows": 1,
}
"""Settings of train.seq_vae with which the original learns, without the number of windows."""
LAYERS = {"0": "0", "1": "2"}
"""Layer of the project -> layer of the plain MLP, where the tanh is a layer too."""


class Vaes(NamedTuple):
    """Holds the project's trainer, a plain model of equal weights, and a replay."""

    worker: SeqVaeTrainer
    plain: plain.Model
    ring: WindowRing


def changed(kind: str, batch_size: int, side: int) -> dict[str, Any]:
    """Returns sections of a config with dynamics `mlp` of one hidden layer, or `rbf`."""
    ours = {"dynamics": kind, "dynamics_hidden": [64], "members": 1}
    return {
        "network": {
            "family": "seq_vae",
            "decoder": "linear",
            "rbf": {"side": side},
            "seq_vae": ours,
        },
        "train": {
            "seq_vae": SAME_WORK | {"batch_size": batch_size},
            "acquisition": {"weights": {"variance": 1.0}},
        },
    }


def vaes_of(sides: Sides) -> Vaes:
    """Returns both networks. Weights of an RBF field are random instead of zeros."""
    config, emission = sides.config, emission_of(sides.config, sides.dataset)
    worker = SeqVaeTrainer.from_state(config, emission, init_state(config, emission, SEED))
    if config.network.seq_vae.dynamics == "rbf":
        with torch.no_grad():
            worker.network.dynamics.weight.normal_(0, 0.3, generator=Generator().manual_seed(SEED))
    copied = plain.Model(shape_of(sides))
    copied.load_state_dict(plain_params(worker.network), strict=False)
    return Vaes(worker, copied, ring_of(sides))


def shape_of(sides: Sides) -> plain.Shape:
    env, network = sides.config.env, sides.config.network
    settings, rbf = network.seq_vae, network.rbf
    return plain.Shape(
        obs=env.observation.channels,
        action=env.world.action_size,
        d=env.d,
        hidden=settings.hidden,
        head=settings.head,
        dynamics_hidden=settings.dynamics_hidden[0],
        centres=rbf.side if settings.dynamics == "rbf" else 0,
        span=rbf.range,
        length=rbf.length,
        dt=env.dt,
    )


def ring_of(sides: Sides) -> WindowRing:
    """Returns the replay of one random walk without truncation."""
    length, env = sides.config.train.seq_vae.length, sides.config.env
    ring = windows.allocate(1, WINDOWS + length, env.observation.channels, env.world.action_size)
    walk = Walk(sides.world, 1)
    for _ in range(WINDOWS + length - 1):
        observed = walk.step().observed
        windows.write(
            ring,
            Entry(observed.observation, observed.action, torch.zeros_like(observed.truncated)),
            length,
        )
    return ring


def plain_params(
    network: SeqVae, of: Callable[[Tensor], Tensor] = lambda param: param
) -> dict[str, Tensor]:
    """Applies `of` to the project's parameters; returns plain names and shapes."""
    result = {}
    for name, param in network.named_parameters():
        value = of(param).detach()
        *path, last = name.split(".")
        if path == ["encoder", "cell"]:
            result[f"encoder.gru.{last}_l0"] = value
        elif path[-1:] == ["weights"] or path[-1:] == ["biases"]:
            result |= _of_layer(path, LAYERS[last], value)
        elif name == "dynamics.weight":
            result["field.weight"] = value[0]
        else:
            result[name.replace("decoder.raw_variance", "raw_observation_variance")] = value
    return result


def _of_layer(path: list[str], place: str, value: Tensor) -> dict[str, Tensor]:
    """Splits stacked networks: the heads of mean and variance, or the single member."""
    plainly, kind = (value, "weight") if path[-1] == "weights" else (value[..., 0], "bias")
    names = ("encoder.mean", "encoder.raw_variance") if path[0] == "encoder" else ("field.layers",)
    return {f"{name}.{place}.{kind}": ours for name, ours in zip(names, plainly, strict=True)}


def plain_window(sampled: Windows) -> plain.Window:
    """Puts the batch axis first."""
    return plain.Window(sampled.observations.transpose(0, 1), sampled.actions.transpose(0, 1))


def plain_draws(draws: elbo.Draws) -> plain.Draw:
    """Returns the project's random numbers of a bound in the order of the plain loop."""
    pending = [part[0].permute(1, 3, 2, 0) for part in (draws.posterior, *draws.steps)]

    def draw(*shape: int) -> Tensor:
        return pending.pop(0)[:, :, : shape[-2]]

    return draw


def refuse_another_loss(vaes: Vaes) -> None:
    """Compares terms and gradients with equal random numbers.

    Raises:
        NotTheSame: they are not.
    """
    worker, train = vaes.worker, vaes.worker.config.train.seq_vae
    network, generator = worker.network, Generator().manual_seed(SEED)
    sampled = windows.sample(vaes.ring, 0, 3, train.length, generator)
    scene = elbo.encode_windows(network, sampled, train.burn_in)
    draws = elbo.draw(1, train.samples, train.horizons, scene, generator)
    scored = elbo.compute_terms(network, scene, draws, network.horizon_mask_weights)
    result = plain.Terms(scored.ell.mean(), scored.kl_first.mean(), scored.kl_steps.mean())
    settings = settings_of(vaes)
    expected = plain.terms(vaes.plain, plain_window(sampled), settings, plain_draws(draws))
    for name, left, right in zip(plain.Terms._fields, result, expected, strict=True):
        if not torch.allclose(left, right, rtol=1e-4):
            raise NotTheSame(
                f"learning: {name} is {left.item():g}, in plain loops {right.item():g}"
            )
    for model, terms in ((network, result), (vaes.plain, expected)):
        model.zero_grad()
        plain.loss(terms, settings, train.window).backward()
    ours = plain_params(network, lambda param: param.grad)
    for name, param in vaes.plain.named_parameters():
        if not torch.allclose(ours[name], param.grad, rtol=1e-2, atol=1e-4):
            raise NotTheSame(f"learning: the gradient of {name} differs from that of plain loops")


def settings_of(vaes: Vaes) -> plain.Settings:
    """Returns the settings of the plain step."""
    train = vaes.worker.config.train.seq_vae
    names = ("samples", "horizons", "decay", "beta", "learning_rate", "max_grad_norm")
    return plain.Settings(**{name: getattr(train, name) for name in names})
