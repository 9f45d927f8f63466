"""A stage in this process, as `python -m pipeline.VERB MODEL` runs it."""

from pipeline.runtime import stage
from pipeline.stages import collect, evaluate, train
from tests.campaign.promises import Outcome, see
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.small_project import Pretended

MODULES = {"collect": collect, "train": train, "evaluate": evaluate}


def stay_in_process(patch: Patch) -> None:
    """Leaves signals, variables and parent of the test's own process alone."""
    patch.setattr(stage, "Signals", Pretended)
    patch.setattr(stage, "die_with_parent", lambda: None)
    patch.setattr(stage, "prepare_process", lambda _: None)
    patch.setattr(stage.compile_cache, "enable", lambda *_: None)


def see_stage(verb: str, model: str, capsys: Capture) -> Outcome:
    module = MODULES[verb]
    body = getattr(module, verb)
    return see(lambda: stage.main(verb, "", body, [model], patience_seconds=0.1), capsys)
