"""A learner works where torch's default device is, asks it for nothing on the way, and is refused
where it cannot work.

The device `meta` holds no values, so whatever would wait for a GPU raises there, on any machine.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.utils._pytree import tree_leaves, tree_map

from quatrain.envs.colony.dynamics import advance, make_world
from quatrain.envs.colony.rewards import components
from quatrain.errors import DeviceMissing
from quatrain.frameworks import torch as torch_settings
from quatrain.models.actor_critic import colony, ppo, train
from quatrain.models.actor_critic import network as networks
from quatrain.models.actor_critic.colony_data import Dataset
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Network
from quatrain.models.actor_critic.ppo import Learner
from quatrain.replay import rollouts
from tests import colonies as by_hand
from tests.conftest import ROOT, small
from tests.elsewhere import Elsewhere, MadeOnTheCpu, without_a_gpu
from tests.models.actor_critic.learners import dataset_of

KINDS = [("light", "beta", "total"), ("full", "squashed_gaussian", "components")]
IDS = [" ".join(kind) for kind in KINDS]
without_a_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "c++"))),
    reason="torch.compile finds no C++ compiler",
)
both_kinds = pytest.mark.parametrize("kind", KINDS, ids=IDS)
Kind = tuple[str, str, str]


def config_with(config: ActorCriticConfig, **changes: Any) -> ActorCriticConfig:
    return config.model_copy(update={"train": config.train.model_copy(update=changes)})


@cache
def collected(kind: Kind) -> tuple[ActorCriticConfig, Dataset]:
    features, policy, value_heads = kind
    selected = {"policy": policy, "value_heads": value_heads, "layers": 2}
    config = small("actor_critic", env={"features": features}, network=selected)
    return config, dataset_of(config)


# Where tensors are.


@pytest.fixture(params=KINDS, ids=IDS)
def learner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Learner]:
    """At work on the device without values; where an iteration begins is known there as well."""
    config, dataset = collected(request.param)
    monkeypatch.setattr(torch_settings, "Generator", Elsewhere)
    with torch.device("meta"):
        seed = train.init_state(config, dataset, 0).seeds[0]
        counts = {name: torch.tensor(0, device="cpu") for name in ("iterations", "updates")}
        yield train.from_state(config, dataset, seed._replace(**counts))


def test_steps_and_updates_make_nothing_on_the_cpu_and_wait_for_no_value(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
):
    """But for once in a rollout, when values are asked for of the episodes that were cut."""
    envs = learner.envs
    parts = learner.rollout, envs.save(Tensor(), Tensor())[:3], [*learner.network.parameters()]
    assert {leaf.device.type for leaf in tree_leaves(parts)} == {"meta"}
    monkeypatch.setattr(envs, "observe_final", lambda *_: envs.observe())
    monkeypatch.setattr(rollouts, "fill_next_values", lambda *_: None)
    with MadeOnTheCpu() as observed:
        ppo.fill_rollout(learner)
        transitions = ppo.compute_advantages(learner)
        for index in rollouts.minibatch_indices(len(transitions.n), 64, learner.order):
            loss, row = ppo.objective(learner, rollouts.minibatch(transitions, index, 32), 0.01)
            ppo.gradient_step(learner, loss, row)
    assert observed.operations == []


@without_a_gpu
@both_kinds
def test_a_gpu_sees_pays_and_answers_what_a_cpu_does(kind: Kind):
    on_cpu, on_gpu = (answers(*collected(kind), device) for device in ("cpu", "cuda"))
    for name, expected in on_cpu.items():
        torch.testing.assert_close(on_gpu[name].cpu(), expected, atol=1e-4, rtol=1e-4, msg=name)


def network_of(config: ActorCriticConfig) -> Network:
    return torch_settings.seeded(lambda: networks.make_network(config, colony.spec_of(config)), 3)


@torch.no_grad()
def answers(config: ActorCriticConfig, dataset: Dataset, device: str) -> dict[str, Tensor]:
    """What is seen of the same colonies, what the network says to it, what a step leads to."""
    world = make_world(config.env, dataset.train.plates)
    colonies = by_hand.wandering(world, 64, 10)
    action = by_hand.actions(world.rules, 64, Generator().manual_seed(0))
    tensors = (world, colonies, action, colony.begin_scale(config, dataset, None))
    with torch.device(device):
        world, colonies, action, scale = tree_map(
            lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, tensors
        )
        actor = networks.make_actor(config, colony.spec_of(config), network_of(config).to(device))
        graphs = colony.view_in(config, world, scale).observe(colonies)
        output = actor.forward(graphs)
        selected = actor.policy.distribution(output.raw)
        transition = advance(world, colonies, action)
        return {
            "graph": graphs.graph,
            **output._asdict(),
            "log_prob": actor.policy.log_prob(selected, actor.policy.mean(selected)),
            "entropy": actor.policy.entropy(selected),
            "pos": transition.after.pos,
            "paid": components(world, transition),
        }


# Other ways to compute the same.


@both_kinds
def test_half_precision_is_near_to_whole(kind: Kind, monkeypatch: pytest.MonkeyPatch):
    config, dataset = collected(kind)
    for module in (networks, train):
        monkeypatch.setattr(module, "on_gpu", lambda: True)
    whole, half = (outputs(config_with(config, amp=amp), dataset) for amp in ("none", "bf16"))
    for item, other in zip(whole, half, strict=True):
        assert other.dtype == torch.float32
        assert not torch.equal(item, other)
        torch.testing.assert_close(other, item, atol=5e-2, rtol=5e-2)


@pytest.mark.slow
@without_a_compiler
@both_kinds
def test_what_is_compiled_is_what_is_written(kind: Kind):
    """Runs in another process: functions that pytest wraps with shape checks cannot be compiled."""
    script = (
        "import sys\n"
        "sys.path[:0] = ['src', '.']\n"
        "from tests.models.actor_critic import test_devices\n"
        f"test_devices.assert_compiled_is_as_written({kind})"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def assert_compiled_is_as_written(kind: Kind) -> None:
    config, dataset = collected(kind)
    eager, compiled = (
        outputs(config_with(config, compile=selected), dataset) for selected in (False, True)
    )
    torch.testing.assert_close(compiled, eager, atol=1e-5, rtol=0)


def outputs(config: ActorCriticConfig, dataset: Dataset) -> list[Tensor]:
    """Raw numbers, values, and how both change with the weights."""
    view = colony.view_of(config, dataset.train.plates, colony.begin_scale(config, dataset, None))
    net = network_of(config)
    with torch.no_grad():
        for param in net.parameters():  # the policy's last layer begins near 0
            param.add_(0.1 * torch.randn(param.shape, generator=Generator().manual_seed(4)))
    actor = networks.make_actor(config, colony.spec_of(config), net)
    output = actor.forward(view.observe(by_hand.wandering(view.world, 9, 5)))
    (output.raw.square().mean() + output.value.square().mean()).backward()
    gradients = [param.grad for param in net.parameters() if param.grad is not None]
    return [*(part.detach() for part in output), *gradients]


# What is refused.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"amp": "bf16"},
            r"amp = 'bf16', but torch finds no NVIDIA device here \(or is built without CUDA\), "
            r"and on a CPU it was measured slower than float32; set amp: none",
        ),
        (
            {"compile": True},
            r"compile = True, but no C\+\+ compiler \(g\+\+, or what CXX names\) is found here; "
            r"install one, or set compile: false",
        ),
    ],
)
def test_what_this_machine_cannot_do_is_refused(
    changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
):
    config, dataset = collected(KINDS[0])
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(DeviceMissing, match=rf"^params\.yaml: actor_critic\.train\.{message}$"):
        next(train.train(config_with(config, **changes), dataset, 0))
