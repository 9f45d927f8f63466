"""What the processes of the campaign need; no framework has begun to work, so that they can be
forked.
"""

from pipeline.judging import gate, promotion
from pipeline.reporting import scores_page
from pipeline.tracking import sync
from quatrain.registry import MODELS, load
from tests.campaign import command_works, works

LOADED = (command_works, works, promotion, sync, gate, scores_page)
LOADED += tuple(load(model).evaluate for model in MODELS)
LOADED += tuple(load(model).plots for model in MODELS)
