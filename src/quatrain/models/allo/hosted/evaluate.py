"""state, held-out walks -> scores: those of allo.evaluate, with the truth of the walks"""

from quatrain.models.allo.evaluate import GATED as GATED
from quatrain.models.allo.evaluate import evaluate as evaluate
