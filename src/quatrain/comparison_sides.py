"""configs of two sides, rules -> what differs, whether the worlds do, and which rule decides."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from quatrain.baselines import Rule
from quatrain.differences import differing
from quatrain.envs.host.rules import RETURN
from quatrain.errors import ConfigError
from quatrain.validation import nearest

# Keys, and characters of a value, that a description shows.
SHOWN_KEYS = 3
SHOWN_CHARACTERS = 40
# Sections, and parts of names in `collect`, of keys on which held-out worlds and scores depend.
OF_WORLDS = ("env.", "evaluate.")
OF_HELD_OUT = ("held_out", "plates", "starts")


def compared_rules(gated: Sequence[Rule]) -> tuple[Rule, ...]:
    """Returns the rules of the gated metrics, and that of the return if `score` stands for it."""
    metrics = {rule.metric for rule in gated}
    is_shown = "score" in metrics and RETURN.metric not in metrics
    return (*gated, RETURN) if is_shown else tuple(gated)


def deciding_rule(rules: Sequence[Rule], metric: str | None, key: str = "metric") -> Rule:
    """Returns the rule of the metric that decides; None: of the first that has a best end.

    key: where the metric was named.

    Raises:
        ConfigError: there is no such rule, or it is best near a value.
    """
    decisive = {rule.metric: rule for rule in rules if rule.direction != "near"}
    if metric is None:
        metric = next(iter(decisive), None)
    if metric not in decisive:
        names = list(decisive)
        raise ConfigError(
            f"{key} = {metric!r}: is no gated metric that has a best end"
            f"{nearest(str(metric), names)}; name one of {', '.join(names)}"
        )
    return decisive[metric]


def world_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Returns the dotted keys that differ and on which held-out worlds, or their scores, depend."""
    return [
        key
        for key in differing(before, after)
        if f"{key}.".startswith(OF_WORLDS)
        or (key.startswith("collect.") and any(part in key for part in OF_HELD_OUT))
    ]


def describe(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Says what differs: `train.learning_rate 0.001 -> 0.003`."""
    pairs = differing(before, after)
    texts = [f"{key} {_shown(old)} -> {_shown(new)}" for key, (old, new) in pairs.items()]
    rest = len(texts) - SHOWN_KEYS
    return ", ".join(texts[:SHOWN_KEYS]) + (f" and {rest} more" if rest > 0 else "")


def _shown(value: Any) -> str:
    """Formats a value as params.yaml has it; the content of a file by its name."""
    if isinstance(value, Mapping) and "name" in value:
        value = value["name"]
    text = value if isinstance(value, str) else to_json(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."
