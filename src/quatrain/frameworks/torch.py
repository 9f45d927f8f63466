"""What the torch models share: a learner <-> flat arrays by name; the state of Adam; generators and
initial weights of a seed; flags, modes and threads that shape numbers, set and restored.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Generator, Tensor, nn
from torch.optim import Optimizer
from torch.optim.adam import adam
from torch.overrides import TorchFunctionMode

from quatrain.frameworks.packing import ArraySpec, flatten, unflatten
from quatrain.frameworks.settings import Shared

Module = TypeVar("Module", bound=nn.Module)
State = TypeVar("State")
MOMENTS = ("exp_avg", "exp_avg_sq")
BACKENDS: Any = torch.backends
# Flags that shape numbers. Of the precision of products of 32-bit floats, those that others inherit
# come first.
FLAGS: tuple[tuple[Any, str, Any], ...] = (
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
# Modes that code may leave changed: how each is read, which takes no time, and set.
MODES: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
)


# Packing.


def to_arrays(state: Any) -> dict[str, np.ndarray]:
    """Returns a copy of each tensor under its path (`params/hidden.bias`).

    Numbers that change while learning are tensors without axes.
    """
    return flatten(state, lambda leaf: np.array(leaf.numpy(force=True), order="C"))


def from_template(template: State, arrays: dict[str, np.ndarray]) -> State:
    """Inverts `to_arrays`; uses only structure, shapes, dtypes and devices of the template.

    Each tensor is new, without a gradient, and on the device of the template's tensor, because
    devices differ: the state of a generator is always on the CPU.

    Raises:
        ValueError: names, shapes or dtypes are not those of the template.
    """
    return unflatten(
        template, arrays, _spec, lambda leaf, array: torch.tensor(array, device=leaf.device)
    )


def _spec(leaf: Tensor) -> ArraySpec:
    dtype = torch.empty(0, dtype=leaf.dtype, device="cpu").numpy().dtype
    return ArraySpec(dtype, tuple(leaf.shape))


# Adam.


class AdamState(NamedTuple):
    """Holds the moments of each parameter; zeros before the first step, and for optimizers without
    moments.
    """

    exp_avg: dict[str, Tensor]
    exp_avg_sq: dict[str, Tensor]
    steps: Float[Tensor, ""]


def init_adam(params: dict[str, Tensor]) -> AdamState:
    average, square = (
        {name: torch.zeros_like(param) for name, param in params.items()} for _ in MOMENTS
    )
    return AdamState(average, square, torch.zeros(()))


class Adam:
    """Adam as torch.optim.Adam with its defaults, by torch's function: the class loads torch's
    compiler, for which a training waits a second.
    """

    def __init__(self, network: nn.Module, state: AdamState, lr: float, eps: float) -> None:
        """Continues from a state, which is not modified."""
        self.lr, self.eps = lr, eps
        self.params = [param for _, param in network.named_parameters()]
        self._names = [name for name, _ in network.named_parameters()]
        self._averages, self._squares = (
            [getattr(state, key)[name].clone() for name in self._names] for key in MOMENTS
        )
        self._steps = [state.steps.clone() for _ in self._names]

    def zero_grad(self) -> None:
        for param in self.params:
            param.grad = None

    @torch.no_grad()
    def step(self) -> None:
        columns = zip(self.params, self._averages, self._squares, self._steps, strict=True)
        learned = [row for row in columns if row[0].grad is not None]
        params, averages, squares, steps = map(list, zip(*learned, strict=True))
        grads = [param.grad for param in params]
        adam(
            params,
            grads,
            averages,
            squares,
            [],
            steps,
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.lr,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )

    @property
    def state(self) -> AdamState:
        """Returns a copy of the moments."""
        average, square = (
            {name: moment.clone() for name, moment in zip(self._names, moments, strict=True)}
            for moments in (self._averages, self._squares)
        )
        return AdamState(average, square, self._steps[0].clone())


def load_adam(optimizer: Optimizer, network: nn.Module, state: AdamState) -> None:
    for name, param in network.named_parameters():
        moments = {key: getattr(state, key)[name].clone() for key in MOMENTS}
        optimizer.state[param] = moments | {"step": state.steps.clone()}


def adam_state(optimizer: Optimizer, network: nn.Module) -> AdamState:
    """Returns a copy of the state of the optimizer."""
    params = dict(network.named_parameters())
    states = {name: optimizer.state.get(param, {}) for name, param in params.items()}
    average, square = (
        {
            name: state.get(key, torch.zeros_like(params[name])).clone()
            for name, state in states.items()
        }
        for key in MOMENTS
    )
    return AdamState(
        average, square, next(iter(states.values())).get("step", torch.zeros(())).clone()
    )


# Random numbers.


def generator_from_seed(seed: np.random.SeedSequence) -> Generator:
    return Generator(device=torch.get_default_device()).manual_seed(
        int(seed.generate_state(1, np.uint64)[0] >> 1)
    )


def generator_from_state(state: UInt8[Tensor, " state"]) -> Generator:
    """Returns a generator that continues from the state, which is copied."""
    generator = Generator(device=torch.get_default_device())
    generator.set_state(state.cpu())
    return generator


def seeded(make: Callable[[], Module], seed: int) -> Module:
    """Returns a new module with the initial weights that it has after `torch.manual_seed(seed)`.

    torch's modules draw them from its global generator, which belongs to the caller and all
    threads; here they are drawn from one of their own.
    """
    with _DrawingFrom(Generator(device=torch.get_default_device()).manual_seed(seed)):
        return make()


class _DrawingFrom(TorchFunctionMode):
    """Gives a generator to all that draws, in the calling thread."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        arguments = kwargs or {}
        # The functions of nn.init name it; the methods of tensors that they call leave it out.
        if "generator" in arguments or func in (Tensor.uniform_, Tensor.normal_):
            arguments = arguments | {"generator": self._generator}
        return func(*args, **arguments)


# Flags, modes and threads.


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
        for holder, name, default in FLAGS:
            before = getattr(holder, name)
            if before != default:
                afterwards.callback(setattr, holder, name, before)
                setattr(holder, name, default)
        yield


_of_process = Shared("flags of torch", _flags_of_process)


@contextmanager
def modes_kept() -> Iterator[None]:
    """Restores afterwards what the block changed of MODES."""
    before = [read() for read, _ in MODES]
    try:
        yield
    finally:
        for (read, restore), value in zip(MODES, before, strict=True):
            if read() != value:
                restore(value)


@contextmanager
def default_device_kept() -> Iterator[None]:
    """Restores afterwards the default device, which takes some microseconds to read."""
    before = torch.get_default_device()
    try:
        yield
    finally:
        if torch.get_default_device() != before:
            # Without a default, calls are faster than with that of the CPU.
            torch.set_default_device(None)
            if torch.get_default_device() != before:
                torch.set_default_device(before)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Uses this number of threads; restores the number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def single_threaded(if_small: bool) -> Iterator[None]:
    """Uses one thread for small matrices, for which a second one is slower."""
    with threads(1 if if_small else torch.get_num_threads()):
        yield
