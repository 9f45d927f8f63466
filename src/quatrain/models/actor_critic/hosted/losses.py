"""log-probabilities, values and entropies of a minibatch -> the loss, as for colonies"""

from quatrain.models.actor_critic.hosted.config import HostedActorCriticConfig
from quatrain.models.actor_critic.losses import TERMS


def terms(config: HostedActorCriticConfig) -> tuple[str, ...]:
    return TERMS
