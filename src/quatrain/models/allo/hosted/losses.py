"""The losses of allo are the same in every environment."""

from quatrain.models.allo.losses import terms as terms
