"""model, changes -> trainings with and without them, until it is clear which side is better."""

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from quatrain.api.configs import check_count, check_seed, check_type, with_changes
from quatrain.api.learning import Watch, train_and_score, untrained
from quatrain.api.progress_display import write
from quatrain.api.results import Result
from quatrain.api.session import computing
from quatrain.api.training import params_from
from quatrain.comparison import BATCHES, Comparison, Run, looks_to
from quatrain.comparison_sides import compared_rules, deciding_rule, describe, world_keys
from quatrain.envs.host.config import names_user_env
from quatrain.errors import ConfigError, TrainingDiverged
from quatrain.params import Params
from quatrain.registry import load
from quatrain.validation import nested

CHANGES = 'a dictionary of keys of the model, such as {"train.learning_rate": 3e-3}'


def compare(
    model: str,
    changes: Mapping[str, Any],
    preset: str | None = None,
    *,
    env: Any = None,
    config: Any = None,
    seeds: int = BATCHES[-1],
    batches: Sequence[int] = BATCHES,
    metric: str | None = None,
    margin: float | None = None,
    different_worlds: bool = False,
    seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
    progress: bool = True,
) -> Comparison:
    """Trains a model with and without changes, over seeds, and says whether they help.

    Both sides of a seed have the same worlds to learn in and to be scored in, so that differences
    within seeds are what is judged. Trainings come in batches; the comparison ends after the first
    batch that decides, or after the last. Each training has one learner, whatever `seeds` of the
    preset or config is. All runs in this process; `make compare` does the same with processes side
    by side, and keeps what it trained.

    Args:
        model: `allo`, `iqn`, `actor_critic` or `active_dynamics`.
        changes: what `after` has in place of the values of `before`: keys with dots, such as
            `{"train.learning_rate": 3e-3}`, or nested dictionaries.
        preset: a name of presets/, as in `quatrain.config`, for both sides.
        env: changes of the environment, or an environment of the user's own as in `quatrain.fit`,
            for both sides.
        config: a whole config of `quatrain.config` for `before`, in place of `env` and `preset`.
        seeds: the largest number of seeds, from `seed` on.
        batches: numbers of seeds after which the comparison may end, beside `seeds`.
        metric: the gated metric that decides, or return_mean where there is one; None: the first.
        margin: differences up to this do not matter; None: up to the tolerance of the gate.
        different_worlds: allow changes of `env`, `evaluate` or held-out worlds, with which seeds
            are no pairs.
        seed: the first seed, from which those of collection, training and evaluation are derived.
        device: `auto`, or a device as in params.yaml (`cpu`, `cuda`).
        threads: compute threads; None: those of params.yaml.
        progress: write a line to stderr for each training.

    Returns:
        The comparison: `.verdict`, `.sentence`, `.table`, `.plots()`, `.to_json()`; a notebook
        shows it. A training that diverged is part of it, as the worst.

    Raises:
        ConfigError: a name, a key or a value cannot be used, the changes change nothing, or the
            sides cannot be compared: before anything is trained.
        TrainingDiverged: no training of either side has a score.
        DataError: nothing can be learned from what a seed collects.
        PackageMissing: jax or torch is not installed; the line has the command that installs it.
        DeviceMissing: there is no such device.

    Example:
        >>> comparison = quatrain.compare("allo", {"train.learning_rate": 3e-3}, "smoke")
        >>> comparison.sentence
        >>> comparison.plots()["differences"]
    """
    check_type("changes", changes, Mapping, CHANGES)
    check_count("seeds", seeds)
    check_type("batches", batches, Sequence, "numbers of seeds, such as (4, 8)")
    if margin is not None and not (isinstance(margin, Real) and margin >= 0):
        raise ConfigError(f"margin is {margin!r}; give a number from 0, in the metric's unit")
    looks = looks_to(seeds, batches)
    shared = {"seed": seed, "device": device, "threads": threads}
    first = params_from(model, preset, config, {} if env is None else {"env": env}, shared)
    check_seed(first.seed + seeds - 1)
    before = with_changes(first, model, {"seeds": 1})
    changed = nested(changes)
    if names_user_env(changed) and not getattr(before, model).brings_env:
        raise ConfigError(
            "env.kind: the changes make another environment; give env, for both sides"
        )
    after = with_changes(before, model, {**changed, "seeds": 1})
    old, new = (getattr(side, model).model_dump() for side in (before, after))
    check_sides(old, new, different_worlds)
    rules = compared_rules(load(model).rules.gated(getattr(before, model)))
    rule = deciding_rule(rules, metric)
    with computing(before, model):
        nothing = Comparison(
            model,
            describe(old, new),
            before=(),
            after=(),
            rules=rules,
            metric=rule.metric,
            margin=rule.tolerance if margin is None else margin,
            looks=looks,
            curves=load(model).train.headline(getattr(before, model)),
            is_paired=not world_keys(old, new),
        )
        return train_until_decided(nothing, (before, after), progress)


def check_sides(old: Mapping[str, Any], new: Mapping[str, Any], different_worlds: bool) -> None:
    """Raises ConfigError if sides are equal, or their scores cannot be compared."""
    if old == new:
        raise ConfigError("the changes change nothing: `before` has these values already")
    keys = world_keys(old, new)
    if keys and not different_worlds:
        raise ConfigError(
            f"{', '.join(keys)}: both sides would be scored in other worlds; give env, which both "
            "have, or compare them without pairs by different_worlds=True"
        )


def train_until_decided(
    nothing: Comparison, sides: tuple[Params, Params], is_shown: bool
) -> Comparison:
    """Trains both sides, seed by seed, until a comparison of them decides or has all seeds.

    nothing: the comparison without trainings.

    Raises:
        TrainingDiverged: no training has a finite score.
    """
    before: list[Run] = []
    after: list[Run] = []
    for look in nothing.looks:
        for number in range(len(before), look):
            for params, runs in zip(sides, (before, after), strict=True):
                seed = params.seed + number
                of_seed = params.model_copy(update={"seed": seed})
                run, text = train(nothing.model, of_seed, nothing.metric)
                # The first training of a side compiles it.
                runs.append(run if number else run._replace(cpu_seconds=math.nan))
                if is_shown:
                    write(f"seed {seed} {'before' if runs is before else 'after'}: {text}")
        comparison = replace(nothing, before=tuple(before), after=tuple(after))
        if comparison.verdict != "undecided":
            break
    return comparison


def train(model: str, params: Params, metric: str) -> tuple[Run, str]:
    """Returns a training, and its score or why it diverged in words."""
    start = time.process_time()
    try:
        result = train_and_score(untrained(params, model), Watch())
    except TrainingDiverged as error:
        return Run(params.seed, cpu_seconds=time.process_time() - start), str(error)
    run = Run(
        seed=params.seed,
        scores=result.scores,
        history=result.history,
        weights=digest_of_weights(result),
        cpu_seconds=time.process_time() - start,
    )
    return run, f"{metric} {result.scores[metric]:.4g}"


def digest_of_weights(result: Result) -> str:
    modules = load(result.model)
    digest = hashlib.sha256()
    for name, array in sorted(modules.train.to_arrays(result.state).items()):
        if name.startswith(modules.train.WEIGHTS):
            digest.update(array.tobytes())
    return digest.hexdigest()
