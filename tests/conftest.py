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

from pipeline.runtime import devices
from pipeline.storage.params_file import read_input
from quatrain.params import Params
from quatrain.presets import parse
from quatrain.registry import MODELS
from quatrain.validation import overlaid, validate
from tests.models.actor_critic import user_envs as actor_critic_user_envs
from tests.models.allo import user_envs as allo_user_envs
from tests.models.iqn import user_envs as iqn_user_envs

ROOT = Path(__file__).parent.parent

SIZES = {model: importlib.import_module(f"tests.models.{model}.sizes") for model in MODELS}
"""Per model: its sizes in tests, which stand beside them."""
SMALL: dict[str, dict[str, Any]] = {model: sizes.SMALL for model, sizes in SIZES.items()}
QUICK: dict[str, dict[str, Any]] = {model: sizes.QUICK for model, sizes in SIZES.items()}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "active_dynamics-seq_vae": (
        "active_dynamics",
        {
            "seeds": 1,
            "network": {"family": "seq_vae"},
            "train": {"seq_vae": {"batch_size": 8, "updates": 2}},
        },
    ),
    # A first record before all is learned.
    "actor_critic-user_env": (
        "actor_critic",
        overlaid(
            actor_critic_user_envs.section("Signs"),
            {"train": {"record_every": 1, "learning_rate": 5e-3}},
        ),
    ),
    "iqn-user_env": ("iqn", iqn_user_envs.section("OneStep")),
}
"""Models in another form, which the contract holds too: name -> model, and changes to SMALL."""
BRIEF = {"train": {"steps": 60, "record_every": 20, "evaluate_every": 20}}
FORMS = {model: (model, {}) for model in MODELS} | VARIANTS
FORMS["allo-user_env"] = ("allo", overlaid(allo_user_envs.section("Corridor"), BRIEF))
"""Every model in every form; `-user_env` learns in an environment of a user (`env.kind`)."""


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
    devices.enable_jax_cache(ROOT, params_with({}))
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    for variable, value in devices.JAX_CACHE_SETTINGS.items():
        name = variable.lower()
        jax.config.update(name, type(getattr(jax.config, name))(value))


share_compiled_programs()
