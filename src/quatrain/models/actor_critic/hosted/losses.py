"""log-probabilities, values and entropies of a minibatch -> the loss, as for colonies"""

from quatrain.models.actor_critic.losses import terms as terms
