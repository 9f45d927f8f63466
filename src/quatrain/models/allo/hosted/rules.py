"""which scores of `evaluate` a baseline judges, and how: those of allo's own maps."""

from quatrain.models.allo.rules import GATED as GATED
from quatrain.models.allo.rules import gated as gated
