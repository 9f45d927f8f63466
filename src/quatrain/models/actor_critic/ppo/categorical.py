"""raw outputs of the actor -> a distribution over the indices of actions

The raw action is the index as a number, on an axis of size 1; the parameters of the distribution
are the log-probabilities.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from quatrain.models.actor_critic.ppo.policy import Params, Policy


def make_categorical() -> Policy:
    """Builds a policy of actions that are indices; the network's raw outputs say how many."""
    return Policy(
        distribution=categorical_distribution,
        sample=categorical_sample,
        mean=most_likely,
        action=to_index,
        log_prob=categorical_log_prob,
        entropy=categorical_entropy,
        kl=categorical_kl,
        raw_entropy=categorical_entropy,
    )


def categorical_distribution(raw: Float[Tensor, "*batch action"]) -> Params:
    return (raw.log_softmax(-1),)


@torch.no_grad()
def categorical_sample(params: Params, generator: torch.Generator) -> Float[Tensor, "*batch 1"]:
    (log_probs,) = params
    flat = log_probs.exp().reshape(-1, log_probs.shape[-1])
    index = torch.multinomial(flat, 1, generator=generator)
    return index.reshape(*log_probs.shape[:-1], 1).to(log_probs.dtype)


def most_likely(params: Params) -> Float[Tensor, "*batch 1"]:
    (log_probs,) = params
    return log_probs.argmax(-1, keepdim=True).to(log_probs.dtype)


def to_index(raw_action: Float[Tensor, "*batch 1"]) -> Int64[Tensor, "*batch"]:
    return raw_action[..., 0].long()


def categorical_log_prob(
    params: Params, raw_action: Float[Tensor, "*batch 1"]
) -> Float[Tensor, "*batch"]:
    (log_probs,) = params
    return log_probs.gather(-1, raw_action.long())[..., 0]


def categorical_entropy(params: Params) -> Float[Tensor, "*batch"]:
    (log_probs,) = params
    return -(log_probs.exp() * log_probs).sum(-1)


def categorical_kl(old: Params, new: Params) -> Float[Tensor, "*batch"]:
    """Computes Σ p_old (ln p_old − ln p_new)."""
    (old_log_probs,) = old
    (new_log_probs,) = new
    return (old_log_probs.exp() * (old_log_probs - new_log_probs)).sum(-1)
