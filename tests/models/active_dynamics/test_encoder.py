"""The encoder: its passes agree, gradients are those of autograd, and it is causal."""

import torch
from torch import Tensor

from quatrain.models.active_dynamics.config import SeqVaeNetwork
from quatrain.models.active_dynamics.seq_vae.encoder import Encoder
from tests.models.active_dynamics.filters import drawn

OBS, ACTION, D, HIDDEN, HEAD, TIME, BATCH = 5, 2, 3, 7, 6, 9, 4


def make_encoder() -> Encoder:
    config = SeqVaeNetwork(
        hidden=HIDDEN, head=HEAD, dynamics="rbf", dynamics_hidden=(1,), members=1
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Encoder(config, OBS, ACTION, D).double()


def test_states_and_gradients_are_those_of_single_steps_by_autograd():
    """Also where two passes share a backward pass."""
    encoder, hidden = make_encoder(), drawn(BATCH, HIDDEN, seed=1)

    def step_by_step(inputs: Tensor, hidden: Tensor) -> Tensor:
        states = []
        for entry in inputs:
            hidden = encoder.step(entry, hidden)
            states.append(hidden)
        return torch.stack(states)

    inputs = [drawn(TIME, BATCH, OBS + ACTION, seed=seed).requires_grad_() for seed in (2, 3)]
    weights, results = drawn(TIME, BATCH, HIDDEN, seed=4), []
    for passed in (encoder, step_by_step):
        first, second = (passed(each, hidden) for each in inputs)
        loss = (first * weights).sum() + second.square().sum()
        gradients = torch.autograd.grad(loss, [*inputs, *encoder.cell.parameters()])
        results.append((first.detach(), second.detach(), *gradients))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


def test_beliefs_of_sequences_are_those_of_each_state():
    """The variance is the same everywhere at first. `test_elbo` has the mean by plain loops."""
    encoder, hidden = make_encoder(), drawn(TIME, BATCH, HIDDEN)
    belief = encoder.belief(hidden)
    for actual, expected in zip(encoder.belief_sequence(hidden), belief, strict=True):
        torch.testing.assert_close(actual.movedim(0, 2), expected)
    variance = torch.full_like(belief.variance, 0.048588)
    torch.testing.assert_close(belief.variance, variance, atol=1e-6, rtol=0)


def test_consecutive_episodes_are_encoded_as_if_each_were_alone():
    encoder, inputs = make_encoder(), drawn(TIME, OBS + ACTION)
    ended = torch.tensor([time in (0, 4, 8) for time in range(TIME)])
    parts = [
        encoder(part[:, None], encoder.initial_hidden(1))[:, 0]
        for part in inputs.tensor_split([1, 5])
    ]
    torch.testing.assert_close(encoder.encode_episodes(inputs, ended), torch.cat(parts))
