"""state, held-out walks -> scores: those of allo.evaluate, with the truth of the walks"""

from quatrain.models.allo.evaluate import evaluate as evaluate
from quatrain.models.allo.hosted.rules import GATED as GATED
