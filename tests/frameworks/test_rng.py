"""Initial weights come from generators of their own, with the numbers of torch's global one."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch
from torch import nn

from quatrain.frameworks.torch import seeded


def make() -> nn.Module:
    """Draws in each way in which the networks draw."""
    layer = nn.Linear(3, 5)
    nn.init.orthogonal_(layer.weight, 2.0)
    bias = nn.Parameter(torch.empty(7).uniform_(-1, 1))
    return nn.ModuleList([layer, nn.GRUCell(3, 5), nn.Linear(5, 7), nn.ParameterList([bias])])


def by_torch(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def assert_equal(module: nn.Module, other: nn.Module) -> None:
    weights, others = module.state_dict(), other.state_dict()
    assert weights.keys() == others.keys()
    assert all(torch.equal(weight, others[name]) for name, weight in weights.items())


def test_weights_are_those_of_torch_s_own_generator_which_stays_as_it_is():
    before = torch.get_rng_state()

    def watched() -> nn.Module:
        module = make()
        assert torch.equal(torch.get_rng_state(), before)
        return module

    assert_equal(seeded(watched, 3), by_torch(3))


def test_two_threads_that_draw_in_turns_do_not_disturb_each_other():
    barrier = Barrier(2, timeout=60)

    def meeting() -> nn.Module:
        barrier.wait()
        first = make()
        barrier.wait()
        return nn.ModuleList([first, make()])

    def alone() -> nn.Module:
        return nn.ModuleList([make(), make()])

    with ThreadPoolExecutor(2) as threads:
        modules = list(threads.map(lambda seed: seeded(meeting, seed), (1, 2)))
    for module, seed in zip(modules, (1, 2), strict=True):
        assert_equal(module, seeded(alone, seed))
