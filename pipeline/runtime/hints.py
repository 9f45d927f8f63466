"""preset, models -> the calls of make that messages advise"""

from quatrain.registry import MODELS


def make_command(target: str, preset: str, *models: str) -> str:
    """Returns the call of make for these models of a preset; of all, if none is named."""
    words = ["make", target]
    if preset != "default":
        words.append(f"PRESET={preset}")
    if models:
        names = " ".join(models)
        words.append(f"MODELS='{names}'" if len(models) > 1 else f"MODELS={names}")
    return " ".join(words)


def repro_hint(preset: str, *models: str) -> str:
    """Returns what runs these models anew; a preset may have settings for no others."""
    named = () if preset == "default" or {*models} == {*MODELS} else models
    return f"run `{make_command('repro', preset, *named)}`"


def promote_hint(preset: str, *models: str, force: bool = False) -> str:
    """Returns the command that stores scores as baselines, `force`: worse ones, too."""
    options = """ ARGS="--force --why '...'\"""" if force else ""
    return f"`{make_command('promote', preset, *models)}{options}`"
