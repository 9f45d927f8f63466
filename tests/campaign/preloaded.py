"""What the processes of the campaign need; no framework has begun to work, so that they can be
forked.
"""

from quatrain.registry import MODELS, load
from tests.campaign import command_works, works

LOADED = (command_works, works, *(load(model).evaluate for model in MODELS))
LOADED += tuple(load(model).plots for model in MODELS)
