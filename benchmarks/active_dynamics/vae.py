"""config -> sequential VAEs of the project and plain, of equal weights; a check that they agree"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from benchmarks.harness import read_config
from benchmarks.reference import active_dynamics as plain
from benchmarks.torch_rows import check_same
from quatrain.models.active_dynamics.collect import collect, emission_of
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.seq_vae import elbo
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeTrainer
from quatrain.models.active_dynamics.seq_vae.trainer_state import init_state
from quatrain.replay import windows
from quatrain.replay.windows import Entry, WindowRing
from quatrain.validation import overlaid

SEED = 0
LENGTH = 20
STORED = 83
"""Transitions of the replay: no multiple of 50, so that no posterior is recomputed while timed."""
SMALL = {"collect": {"held_out_rollouts": 8, "starts": 8}, "train": {"arms": ["random"]}}
"""Sizes of what these comparisons do not use."""
SIZES = {"window": LENGTH, "burn_in": 0, "samples": 5, "horizons": 5, "min_windows": 1}
LOSS = {"anneal_kind": "none", "warmup": 0, "beta": 1.0, "mask": 0.0}
UPDATE = {"updates": 1, "optimizer": "adam", "weight_decay": 0.0}
"""Settings of train.seq_vae with which the original learns."""
LAYERS = {"0": "0", "1": "2"}
"""Layer of the project -> layer of the plain MLP, where the tanh is a layer too."""


class Vaes(NamedTuple):
    """Holds the project's trainer, a plain model of equal weights, and a replay."""

    trainer: SeqVaeTrainer
    plain: plain.Model
    ring: WindowRing


def config_of(root: Path, learners: int, **sections: Any) -> ActiveDynamicsConfig:
    """Returns params.yaml with this number of learners and sections of active_dynamics changed."""
    changes = overlaid({"seeds": learners, **SMALL}, sections)
    return read_config(root, None, "active_dynamics", changes)


def vaes_of(root: Path, kind: str, batch_size: int, side: int) -> Vaes:
    """Returns both networks with dynamics `mlp` or `rbf`, whose weights are random, not zeros."""
    vae = {"dynamics": kind, "dynamics_hidden": [64], "members": 1}
    network = {"family": "seq_vae", "decoder": "linear", "rbf": {"side": side}, "seq_vae": vae}
    train = {"seq_vae": SIZES | LOSS | UPDATE | {"batch_size": batch_size}}
    config = config_of(root, 1, network=network, train=train)
    emission = emission_of(config, collect(config, SEED))
    trainer = SeqVaeTrainer.from_state(config, emission, init_state(config, emission, SEED))
    if kind == "rbf":
        with torch.no_grad():
            trainer.network.dynamics.weight.normal_(0, 0.3, generator=Generator().manual_seed(SEED))
    copied = plain.Model(shape_of(config))
    copied.load_state_dict(plain_params(trainer.network), strict=False)
    return Vaes(trainer, copied, ring_of(config))


def shape_of(config: ActiveDynamicsConfig) -> plain.Shape:
    env, network, rbf = config.env, config.network.seq_vae, config.network.rbf
    centres = rbf.side if network.dynamics == "rbf" else 0
    inputs = (env.observation.channels, env.action_size, env.d)
    units = (network.hidden, network.head, network.dynamics_hidden[0])
    return plain.Shape(*inputs, *units, centres, rbf.range, rbf.length, env.dt)


def ring_of(config: ActiveDynamicsConfig) -> WindowRing:
    """Returns a replay of random transitions without truncation."""
    env, generator = config.env, Generator().manual_seed(SEED)
    ring = windows.allocate(1, STORED + 1, env.observation.channels, env.action_size)
    for _ in range(STORED):
        observation = torch.randn(1, env.observation.channels, generator=generator)
        action = torch.randn(1, env.action_size, generator=generator)
        windows.write(ring, Entry(observation, action, torch.tensor([False])), LENGTH)
    return ring


def plain_params(
    network: SeqVae, of: Callable[[Tensor], Any] = lambda param: param
) -> dict[str, Tensor]:
    """Applies `of` to the project's parameters; returns plain names and shapes."""
    result = {}
    for name, param in network.named_parameters():
        value = of(param).detach()
        *path, last = name.split(".")
        if path == ["encoder", "cell"]:
            result[f"encoder.gru.{last}_l0"] = value
        elif path[-1:] in (["weights"], ["biases"]):
            result |= _of_layer(path, LAYERS[last], value)
        elif name == "dynamics.weight":
            result["field.weight"] = value[0]
        else:
            result[name.replace("decoder.raw_variance", "raw_observation_variance")] = value
    return result


def _of_layer(path: list[str], place: str, value: Tensor) -> dict[str, Tensor]:
    """Splits stacked networks: the heads of mean and variance, or the single member."""
    plainly, kind = (value, "weight") if path[-1] == "weights" else (value[..., 0], "bias")
    names = ("encoder.mean", "encoder.raw_variance") if path[0] == "encoder" else ("field",)
    return {f"{name}.{place}.{kind}": ours for name, ours in zip(names, plainly, strict=True)}


def refuse_another_loss(vaes: Vaes) -> None:
    """Compares terms and gradients with equal random numbers.

    Raises:
        NotComparable: they differ.
    """
    network, train = vaes.trainer.network, vaes.trainer.config.train.seq_vae
    generator, settings = Generator().manual_seed(SEED), settings_of(vaes)
    sampled = windows.sample(vaes.ring, 0, 3, LENGTH, generator)
    encoded = elbo.encode_windows(network, sampled, train.burn_in)
    draws = elbo.draw(1, train.samples, train.horizons, encoded, generator)
    scored = elbo.compute_terms(network, encoded, draws, network.horizon_mask_weights)
    result = plain.Terms(scored.ell.mean(), scored.kl_first.mean(), scored.kl_steps.mean())
    window = plain.Window(*(part.transpose(0, 1) for part in sampled[:2]))
    pending = [part[0].permute(1, 3, 2, 0) for part in (draws.posterior, *draws.steps)]
    expected = plain.terms(
        vaes.plain, window, settings, lambda *shape: pending.pop(0)[:, :, : shape[-2]]
    )
    check_same("learning: terms", result, expected, rtol=1e-4)
    for model, terms in ((network, result), (vaes.plain, expected)):
        model.zero_grad()
        plain.loss(terms, settings, LENGTH).backward()
    ours = plain_params(network, lambda param: param.grad)
    for name, param in vaes.plain.named_parameters():
        check_same(f"learning: gradient of {name}", ours[name], param.grad, 1e-2, 1e-4)


def settings_of(vaes: Vaes) -> plain.Settings:
    """Returns the settings of the plain step."""
    train = vaes.trainer.config.train.seq_vae
    names = ("samples", "horizons", "decay", "beta", "learning_rate", "max_grad_norm")
    return plain.Settings(**{name: getattr(train, name) for name in names})
