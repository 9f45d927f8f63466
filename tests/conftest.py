"""What tests share: the committed params.yaml, small variants of its sections, and the repository's
root.
"""

import importlib.util
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

ROOT = Path(__file__).parent.parent

SIZES = {model: importlib.import_module(f"tests.models.{model}.sizes") for model in MODELS}
"""Per model: its sizes in tests, which stand beside them."""
SMALL: dict[str, dict[str, Any]] = {model: sizes.SMALL for model, sizes in SIZES.items()}
QUICK: dict[str, dict[str, Any]] = {model: sizes.QUICK for model, sizes in SIZES.items()}


def in_forms(model: str, name: str) -> dict[str, Any]:
    """A value of the model's forms.py, which not every model has."""
    module = f"tests.models.{model}.forms"
    forms = importlib.import_module(module) if importlib.util.find_spec(module) else None
    return getattr(forms, name, {})


def forms(name: str) -> dict[str, tuple[str, dict[str, Any]]]:
    return {
        f"{model}-{form}": (model, changes)
        for model in MODELS
        for form, changes in in_forms(model, name).items()
    }


VARIANTS = forms("VARIANTS")
"""Models in another form, which the contract holds too: name -> model, and changes to SMALL."""
FORMS = {model: (model, {}) for model in MODELS} | VARIANTS | forms("FORMS")
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
    """A model's small config with sections changed: small(model, train={"steps": 40}, seeds=3)."""
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
