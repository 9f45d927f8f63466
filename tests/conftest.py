"""What tests share: the committed params.yaml, small variants of its sections, and the repository's
root.
"""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jaxtyping
import pytest

from pipeline.runtime import compile_cache
from pipeline.storage.params_file import overlaid, parse, read_input, validate
from quatrain.params import Params
from tests.models.actor_critic import hosted_envs as actor_critic_hosted
from tests.models.iqn import hosted_envs as iqn_hosted

ROOT = Path(__file__).parent.parent
PAPER_GRIDS = ROOT.parent / "shared" / "data" / "grids"
"""The maps of the ALLO paper, which are no part of the project; tests that want them are skipped
without.
"""

SMALL: dict[str, dict[str, Any]] = {
    "allo": {
        "collect": {"num_envs": 13, "steps_per_env": 60, "held_out_fraction": 0.2},
        "network": {"d": 3, "hidden": 16, "layers": 2},
        "train": {
            "batch_size": 32,
            "steps": 60,
            "record_every": 20,
            "evaluate_every": 20,
            "learning_rate": 0.01,
        },
    },
    "iqn": {
        "env": {
            "worlds": 4,
            "height": 6,
            "width": 6,
            "agents": 2,
            "max_turns": 10,
            "spawn_probability": 0.05,
        },
        "collect": {"turns": 20, "held_out_worlds": 64},
        "network": {"frames": 2, "hidden": 24, "cosines": 8},
        "train": {
            "turns": 60,
            "turns_per_cycle": 10,
            "updates_per_cycle": 20,
            "batch_size": 32,
            "capacity": 400,
            "learning_rate": 3e-3,
            "target": {"rate": 0.1},
            "record_every": 40,
            "evaluate_every": 40,
            "evaluation_worlds": 8,
            "loss": {"quantiles": 4, "target_quantiles": 4, "discount": 0.9},
            "acting": {"quantiles": 4, "epsilon": {"over_transitions": 200}},
        },
    },
    "actor_critic": {
        "env": {
            "width": 60,
            "height": 60,
            "max_nodes": 32,
            "target_nodes": 6,
            "n0_min": 2,
            "n0_max": 8,
            "max_steps": 12,
            "left_limit": 5,
        },
        "collect": {
            "n_train": 3,
            "n_held_out": 4,
            "n_outside": 2,
            "held_out_colonies": 64,
            "validation_colonies": 16,
            "constant_search": 200,
        },
        "network": {"encoder": "attention", "d": 16, "layers": 1, "heads": 2},
        "train": {
            "num_envs": 24,
            "horizon": 8,
            "transitions": 24 * 8 * 8,
            "record_every": 2,
            "evaluate_every": 0,
            "minibatch_size": 64,
            "epochs": 4,
            "learning_rate": 0.01,
            "discount": 0.98,
            "discount_end": 0.98,
            "gae_lambda": 0.95,
            "target_kl": 0.2,
        },
        "evaluate": {"bootstrap_samples": 200},
    },
    "active_dynamics": {
        "seeds": 2,
        "env": {"observation": {"channels": 8}},
        "collect": {"warmup": 10, "held_out_rollouts": 8, "starts": 8},
        "network": {
            "rbf": {"side": 5, "length": 0.9, "prior_field_sd": 1.0},
            "seq_vae": {"hidden": 8, "head": 7, "dynamics_hidden": [6]},
        },
        "train": {
            "arms": ["active", "random"],
            "transitions": 60,
            "record_every": 20,
            "checkpoints": 5,
            "planner": {"candidates": 8, "iterations": 1, "horizon": 3, "elites": 3, "keep": 1},
            "seq_vae": {
                "samples": 2,
                "horizons": 3,
                "window": 8,
                "burn_in": 2,
                "batch_size": 4,
                "min_windows": 2,
                "learning_rate": 0.02,
                "anneal": 5,
            },
        },
        "evaluate": {"elbo_samples": 4},
    },
}
"""Per model: the changes to params.yaml that make a run take a second and still learn something."""
QUICK: dict[str, dict[str, Any]] = {
    "allo": {"train": {"steps": 240, "evaluate_every": 40}},
    "iqn": {"train": {"turns": 120, "record_every": 20}},
    "actor_critic": {"train": {"transitions": 24 * 8 * 12, "record_every": 1}},
    "active_dynamics": {"train": {"record_every": 5}},
}
"""Per model: on top of SMALL, twelve yields (`small_project.YIELDS`) at which a run can be
cut off.
"""
SIZES = {
    path.parent.name: importlib.import_module(f"tests.models.{path.parent.name}.sizes")
    for path in sorted((ROOT / "tests" / "models").glob("*/sizes.py"))
}
"""Per model of `make new`: its sizes, which stand beside its tests."""
SMALL |= {model: sizes.SMALL for model, sizes in SIZES.items()}
QUICK |= {model: sizes.QUICK for model, sizes in SIZES.items()}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "active_dynamics-seq_vae": (
        "active_dynamics",
        {
            "seeds": 1,
            "network": {"family": "seq_vae"},
            "train": {"seq_vae": {"batch_size": 8, "updates": 2}},
        },
    ),
    "actor_critic-hosted": ("actor_critic", actor_critic_hosted.section("Signs")),
    "iqn-hosted": ("iqn", iqn_hosted.section("OneStep")),
}
"""Models in another form, which the contract holds too: name -> model, and changes to SMALL."""


def params_with(overlay: dict[str, Any]) -> Params:
    """params.yaml with some values changed."""
    return validate(overlaid(committed(), overlay), lambda name: read_input(ROOT, str(name)))


@cache
def committed() -> dict[str, Any]:
    """params.yaml as it stands; reading it takes longer than many a test, and nothing
    changes it.
    """
    return parse(ROOT / "params.yaml")


def small(model: str, **sections: Any) -> Any:
    """A model's small config with sections changed: small("allo", train={"steps": 40}, seeds=3)."""
    return getattr(params_with(overlaid({model: SMALL[model]}, {model: sections})), model)


@contextmanager
def shapes_unchecked() -> Iterator[None]:
    """Switches beartype off: a training calls the same functions thousands of times."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(autouse=True, scope="module")
def programs_go_with_their_module() -> Iterator[None]:
    """Hundreds of compiled programs in one process reach the system's limit of memory maps, and XLA
    aborts.
    """
    yield
    jax.clear_caches()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Runs PyTorch on one thread: the operations of small networks are too small to share."""
    import torch  # what only tests of JAX models do not wait for

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def share_compiled_programs() -> None:
    """Loads what another file, worker or run has compiled. The shape checks import jax before any
    variable can be set, so it is configured a second time.
    """
    compile_cache.enable(ROOT, params_with({}))
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    for variable, value in compile_cache.SETTINGS.items():
        name = variable.lower()
        jax.config.update(name, type(getattr(jax.config, name))(value))


share_compiled_programs()
