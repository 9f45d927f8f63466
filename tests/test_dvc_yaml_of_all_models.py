"""dvc.yaml against the import graphs of all models, as a whole: one of them alone needs not all."""

from tests.test_dvc_yaml import SLOTS, STAGES, Declared, covers, every_stage, needed


@every_stage
def test_no_dependency_is_superfluous(stage: Declared):
    """What dvc.yaml names for all models shapes an out of this stage of one of them; what it names
    for this model shapes an out of one of its stages.
    """
    slots = SLOTS.get(stage.model, {})
    parts = [f"src/quatrain/{part}" for part in slots.values()]
    parts.append(f"src/quatrain/frameworks/{slots.get('framework')}.py")
    for dep in stage.deps:
        if dep.startswith("src/"):
            reason = "model" if dep in parts else "verb"
            same = [each for each in STAGES if getattr(each, reason) == getattr(stage, reason)]
            assert any(covers(dep, file) for each in same for file in needed(each)), dep
