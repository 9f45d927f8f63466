"""The encoder: carried states equal the full pass, gradients are autograd's, it is causal."""

import pytest
import torch
from torch import Generator, Tensor

from quatrain.models.active_dynamics.config import SeqVaeNetwork
from quatrain.models.active_dynamics.seq_vae.encoder import Encoder

OBS, ACTION, D, HIDDEN, HEAD, TIME, BATCH = 5, 2, 3, 7, 6, 9, 4


def make_encoder() -> Encoder:
    config = SeqVaeNetwork(
        hidden=HIDDEN, head=HEAD, dynamics="rbf", dynamics_hidden=(1,), members=1
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Encoder(config, OBS, ACTION, D).double()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=Generator().manual_seed(seed))


def plain(encoder: Encoder, inputs: Tensor, hidden: Tensor) -> Tensor:
    """Computes the states one time after the other, by autograd."""
    result = []
    for entry in inputs:
        hidden = encoder.cell(entry, hidden)
        result.append(hidden)
    return torch.stack(result)


def test_states_and_gradients_are_those_of_torch():
    encoder, inputs, hidden = (
        make_encoder(),
        drawn(TIME, BATCH, OBS + ACTION).requires_grad_(),
        drawn(BATCH, HIDDEN, seed=1),
    )
    weights, result = drawn(TIME, BATCH, HIDDEN, seed=2), []
    for states in (encoder(inputs, hidden), plain(encoder, inputs, hidden)):
        grads = torch.autograd.grad((states * weights).sum(), [inputs, *encoder.cell.parameters()])
        result.append((states.detach(), *grads))
    for actual, expected in zip(*result, strict=True):
        torch.testing.assert_close(actual, expected)


def test_gradients_agree_with_differences():
    encoder, hidden = make_encoder(), drawn(BATCH, HIDDEN, seed=1)
    inputs = drawn(3, BATCH, OBS + ACTION).requires_grad_()
    assert torch.autograd.gradcheck(lambda entry: encoder(entry, hidden), inputs)


def test_two_losses_share_one_backward_and_each_may_have_its_own():
    encoder, hidden = make_encoder(), drawn(BATCH, HIDDEN, seed=1)
    inputs = [drawn(TIME, BATCH, OBS + ACTION, seed=seed) for seed in (2, 3)]
    (encoder(inputs[0], hidden).square().sum() + encoder(inputs[1], hidden).sum()).backward()
    together = [param.grad.clone() for param in encoder.cell.parameters()]
    encoder.zero_grad()
    encoder(inputs[0], hidden).square().sum().backward()
    encoder(inputs[1], hidden).sum().backward()
    for actual, param in zip(together, encoder.cell.parameters(), strict=True):
        torch.testing.assert_close(actual, param.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_carried_state_says_what_the_full_pass_says(dtype: torch.dtype):
    encoder, inputs = make_encoder().to(dtype), drawn(60, BATCH, OBS + ACTION).to(dtype)
    full, hidden = (
        encoder.belief(encoder(inputs, encoder.initial_hidden(BATCH))),
        encoder.initial_hidden(BATCH),
    )
    for time, entry in enumerate(inputs):
        hidden = encoder.step(entry, hidden)
        for actual, expected in zip(encoder.belief(hidden), full, strict=True):
            torch.testing.assert_close(actual, expected[time], atol=1e-6, rtol=0)


def test_beliefs_of_many_are_those_of_each():
    encoder, hidden = make_encoder(), drawn(TIME, BATCH, HIDDEN)
    for actual, expected in zip(
        encoder.belief_sequence(hidden), encoder.belief(hidden), strict=True
    ):
        torch.testing.assert_close(actual.movedim(0, 2), expected)
    (mean, _), head = encoder.belief(hidden), encoder.heads
    plain_mean = head.weights[1][0] @ torch.tanh(
        head.weights[0][0] @ hidden[3, 2, :, None] + head.biases[0][0]
    )
    torch.testing.assert_close(mean[3, 2], (plain_mean + head.biases[1][0])[:, 0])


def test_an_observation_or_action_changes_beliefs_from_its_own_on():
    encoder, inputs = make_encoder(), drawn(TIME, BATCH, OBS + ACTION)
    for column in (0, OBS):
        changed = inputs.clone()
        changed[5, :, column] += 1
        before, after = (
            encoder(entry, encoder.initial_hidden(BATCH)) for entry in (inputs, changed)
        )
        assert torch.equal(before[:5], after[:5])
        assert (before[5:] != after[5:]).flatten(1).any(1).all()


def test_episodes_in_a_row_are_encoded_as_if_each_were_alone():
    encoder, inputs, ended = (
        make_encoder(),
        drawn(TIME, OBS + ACTION),
        torch.zeros(TIME, dtype=torch.bool),
    )
    ended[[0, 4, 8]] = True
    parts = [
        encoder(part[:, None], encoder.initial_hidden(1))[:, 0]
        for part in inputs.tensor_split([1, 5])
    ]
    torch.testing.assert_close(encoder.encode_episodes(inputs, ended), torch.cat(parts))


def test_the_first_variance_is_the_same_everywhere():
    variance = make_encoder().belief(drawn(BATCH, HIDDEN)).variance
    torch.testing.assert_close(
        variance, torch.full_like(variance, 0.048587 + 1e-6), atol=1e-6, rtol=0
    )
