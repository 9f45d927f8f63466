"""steps of an agent, transitions of a run -> rows: time of a belief, memory of a transition"""

import gc
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Generator, Tensor, nn

from benchmarks.reference import active_dynamics as reference
from benchmarks.reference.active_dynamics import Agent, RecentRollout, Transition
from benchmarks.rows import ORIGINAL, OURS, PROPOSAL, Claim, Row, Times
from benchmarks.timing import Work, check_same, race
from pipeline.storage.params_file import read_params
from quatrain.frameworks.torch import threads
from quatrain.models.active_dynamics.collect import collect, emission_of
from quatrain.models.active_dynamics.seq_vae.network import SeqVae, init_network
from quatrain.replay import windows

SEED = 0
LENGTH, STEPS = 20, 40
"""Transitions that the original encodes in each step; steps of a call."""
TRANSITIONS, FEW = 10_000, 40
CHANNELS, ACTION, D = 50, 2, 2
CHANGES: Mapping[str, Any] = {
    "seeds": 1,
    "network": {
        "family": "seq_vae",
        "decoder": "linear",
        "seq_vae": {"dynamics": "mlp", "dynamics_hidden": [64], "members": 1},
    },
    "collect": {"held_out_rollouts": 8, "starts": 8},
    "train": {"arms": ["random"]},
}
BELIEFS = "the proposal's agent hears no observation after the first; all encode and predict only"


def measure(root: Path, rounds: int) -> list[Row]:
    """Measures all rows, with one thread."""
    with threads(1):
        return [agent_row(root, rounds), memory_row()]


# Beliefs.


def agent_row(root: Path, rounds: int) -> Row:
    """Measures a belief and a prediction."""
    network = network_of(root)
    check_beliefs(network)
    observed = transitions_of(network)
    encode, predict = plain_encoder(network), predictor(network)
    works: dict[str, Work] = {
        ORIGINAL: partial(play, Agent(encode, predict, RecentRollout(LENGTH)), observed),
        PROPOSAL: partial(
            play,
            reference.ProposedAgent(encode, predict, reference.ProposedRollout(LENGTH)),
            observed,
        ),
        OURS: lambda: play(Carried(network), observed),
    }
    times = race(works, rounds, dict.fromkeys(works, STEPS))
    claim = Claim("dynamics", "50-70 % faster agent step", 1.5)
    return Row("agent step", "ms/step", times, claim, BELIEFS)


def network_of(root: Path) -> SeqVae:
    config = read_params(root, None, {"active_dynamics": CHANGES}).active_dynamics
    return init_network(config, emission_of(config, collect(config, SEED)), SEED)


def transitions_of(network: SeqVae) -> list[tuple[Tensor, Tensor]]:
    """Returns random observations, and the actions that led to them."""
    generator, action = Generator().manual_seed(SEED), network.control.shape[1]
    channels = network.encoder.cell.input_size - action
    drawn = (torch.randn(STEPS, size, generator=generator) for size in (channels, action))
    return list(zip(*drawn, strict=True))


def play(agent: "Agent | Carried", observed: list[tuple[Tensor, Tensor]]) -> None:
    for observation, action in observed:
        agent.step(observation, action)


def plain_encoder(network: SeqVae) -> reference.Encode:
    """Encodes whole windows with PyTorch's GRU, of equal weights."""
    cell = network.encoder.cell
    gru = nn.GRU(cell.input_size, cell.hidden_size, batch_first=True)
    gru.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})

    def encode(observations: Tensor, actions: Tensor) -> Tensor:
        hidden, _ = gru(torch.cat([observations, actions], 1)[None])
        return network.encoder.belief(hidden[0]).mean[-1]

    return encode


def predictor(network: SeqVae) -> Callable[[Tensor, Tensor], Tensor]:
    model, effect = network.transition_model(), network.control * network.dt

    def predict(belief: Tensor, action: Tensor) -> Tensor:
        return model.mean(belief[None, :, None], effect @ action[:, None])[0, :, 0]

    return predict


class Carried:
    """Carries the encoder's hidden state from step to step, as the project's trainer does."""

    def __init__(self, network: SeqVae) -> None:
        self.encoder, self.predict = network.encoder, predictor(network)
        self.hidden = network.encoder.initial_hidden(1)
        self.belief = self.predicted = network.first_mean.detach()

    @torch.no_grad()
    def step(self, observation: Tensor, action: Tensor) -> Tensor:
        """Returns the mean of the belief."""
        self.predicted = self.predict(self.belief, action)
        self.hidden = self.encoder.cell(torch.cat([observation, action])[None], self.hidden)
        self.belief = self.encoder.belief(self.hidden).mean[0]
        return self.belief


def check_beliefs(network: SeqVae) -> None:
    """Compares beliefs and predictions while the whole episode is in the original's window.

    Raises:
        NotComparable: they differ.
    """
    agent = Agent(plain_encoder(network), predictor(network), RecentRollout(LENGTH))
    carried = Carried(network)
    for time, transition in enumerate(transitions_of(network)[:LENGTH]):
        results = {ORIGINAL: [agent.step(*transition)], OURS: [carried.step(*transition)]}
        if time:
            results[ORIGINAL].append(agent.predicted)
            results[OURS].append(carried.predicted)
        check_same(f"agent step {time}", results, 1e-3, 1e-5)


# Memory.


def memory_row() -> Row:
    """Measures by how much a process grows with all transitions of a run."""
    works = {
        ORIGINAL: partial(stored_by, RecentRollout),
        PROPOSAL: partial(stored_by, reference.ProposedRollout),
        OURS: ring_of,
    }
    sides = {side: Times([grown(work) / TRANSITIONS]) for side, work in works.items()}
    work = f"memory of a transition of {CHANNELS} channels, of {TRANSITIONS:,}"
    return Row(work, "KiB", sides, Claim("dynamics", "20-40 % less memory", 1.25))


def grown(work: Callable[[int], object]) -> float:
    """Returns the bytes by which a new process grows, after the libraries have loaded what they
    load on demand.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(growth, work).result()


def growth(work: Callable[[int], object]) -> float:
    torch.set_num_threads(1)
    work(FEW)
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    retained = work(TRANSITIONS)
    result = process.memory_info().rss - before
    del retained
    return float(result)


def transition_of(generator: Generator) -> Transition:
    """Returns a transition with the original's columns."""
    sizes = {"obs": CHANNELS, "next_obs": CHANNELS, "action": ACTION}
    sizes |= {"model_state": D, "next_model_state": D}
    created = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
    return created | {"reward": torch.zeros(())}


def stored_by(
    kind: type[RecentRollout], transitions: int
) -> tuple[RecentRollout, list[Transition]]:
    """Stores a dictionary per transition; copies the latest transitions in each step."""
    generator, latest, stored = Generator().manual_seed(SEED), kind(LENGTH), []
    for _ in range(transitions):
        transition = transition_of(generator)
        stored.append({name: value.detach() for name, value in transition.items()})
        latest.add(transition)
        latest.copy()
    return latest, stored


def ring_of(transitions: int) -> windows.WindowRing:
    """Stores them in the project's ring."""
    generator = Generator().manual_seed(SEED)
    ring = windows.allocate(1, transitions, CHANNELS, ACTION)
    for _ in range(transitions):
        drawn = transition_of(generator)
        observation = drawn["next_obs"][None]
        ended = torch.tensor([False])
        windows.write(ring, observation, drawn["action"][None], ended, LENGTH)
    return ring
