"""the flags of torch that shape numbers -> their defaults, for a while."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from quatrain.frameworks.shared import Shared

BACKENDS: Any = torch.backends
# Of the precision of products of 32-bit floats, those that others inherit come first.
DEFAULTS: tuple[tuple[Any, str, Any], ...] = (
    (BACKENDS.cudnn, "benchmark", False),
    (BACKENDS, "fp32_precision", "none"),
    (BACKENDS.mkldnn, "fp32_precision", "none"),
    (BACKENDS.cudnn, "fp32_precision", "none"),
    (BACKENDS.cuda.matmul, "fp32_precision", "none"),
    (BACKENDS.mkldnn.matmul, "fp32_precision", "none"),
    (BACKENDS.mkldnn.conv, "fp32_precision", "none"),
    (BACKENDS.mkldnn.rnn, "fp32_precision", "none"),
    (BACKENDS.cudnn.conv, "fp32_precision", "tf32"),
    (BACKENDS.cudnn.rnn, "fp32_precision", "tf32"),
)
AUTOCAST = ("cpu", "cuda", "mps")


@contextmanager
def default_flags() -> Iterator[None]:
    """Sets the flags that change what is computed to torch's defaults, and restores them.

    Modes of gradients and autocast are the calling thread's; type and precision of floats are the
    process's, and threads that compute at once share them.
    """
    with ExitStack() as afterwards:
        afterwards.enter_context(_of_process())
        afterwards.enter_context(torch.inference_mode(False))
        afterwards.enter_context(torch.enable_grad())
        for device in filter(torch.is_autocast_enabled, AUTOCAST):
            afterwards.enter_context(torch.autocast(device, enabled=False))
        yield


@contextmanager
def _flags_of_process() -> Iterator[None]:
    with ExitStack() as afterwards:
        afterwards.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
        for holder, name, default in DEFAULTS:
            before = getattr(holder, name)
            if before != default:
                afterwards.callback(setattr, holder, name, before)
                setattr(holder, name, default)
        yield


_of_process = Shared("flags of torch", _flags_of_process)
