"""model, config -> dataset -> trained state -> scores: what the pipeline's stages do, in one
call.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from quatrain.api.configs import (
    check_dataset,
    check_seed,
    check_type,
    env_keys,
    make_params,
    params_with,
    read_defaults,
    with_changes,
)
from quatrain.api.learning import (
    Record,
    check_unfinished,
    continued,
    train_and_score,
    untrained,
    watching,
)
from quatrain.api.results import Result, load
from quatrain.api.session import computing
from quatrain.errors import ConfigError, DataError
from quatrain.frameworks.packing import flatten
from quatrain.params import Params
from quatrain.progress import Evaluation
from quatrain.registry import load as load_modules
from quatrain.seeds import derive_seed


def fit(
    model: str,
    preset: str | None = None,
    *,
    env: Any = None,
    config: Any = None,
    seed: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    progress: bool = True,
    dataset: Any = None,
    callback: Callable[[Record], Any] | None = None,
    checkpoint_every: int | None = None,
    folder: str | Path | None = None,
    resume_from: Result | str | Path | None = None,
    **changes: Any,
) -> Result:
    """Collects data, trains a model and scores it on held-out data.

    With the defaults of the package it gives the very scores of `make repro`, for all random
    numbers come from `seed` and the names of the stages. jax takes device and threads once per
    process, when it is first used; torch's are restored when the call ends. A Ctrl-C while it
    trains ends the training as `callback` does, with a warning; another one raises.

    Args:
        model: `allo`, `iqn`, `actor_critic` or `active_dynamics`.
        preset: a name of presets/, as in `quatrain.config`.
        env: changes of the environment, such as `{"layout": "map.txt"}`, or an environment of the
            user's own: an id such as `"CartPole-v1"` or `"module:Id-v0"`; a class, or a function
            that returns a new environment; one of `gymnasium.make`, which is made again; or a
            dictionary such as `{"id": "CartPole-v1"}` or `{"import": MyEnv, "kwargs": {"size": 5},
            "wrappers": [MyWrapper], "max_episode_steps": 100}`. What no other process can import
            (a lambda, a class of a notebook) stays in this one.
        config: a whole config of `quatrain.config`, in place of `env`, `preset` and `changes`.
        seed: the seed from which those of collection, training and evaluation are derived; None:
            that of `resume_from`, or 0.
        device: `auto`, or a device as in params.yaml (`cpu`, `cuda`).
        threads: compute threads, on which a CPU result depends; None: those of params.yaml.
        progress: show steps and two metrics on stderr: a bar by tqdm on a terminal or in a
            notebook, plain lines elsewhere.
        dataset: data to train on in place of collecting it: `result.dataset` of an equal config.
        callback: called with a `Record` (model, step, steps, metrics) every `train.record_every`;
            if it returns True, the training ends, and what was learned is scored.
        checkpoint_every: steps after which the training is saved in `folder`, without scores;
            gradient steps of allo and iqn, iterations of actor_critic, else transitions.
        folder: where checkpoints and in the end the result are saved, as by `result.save`.
        resume_from: a folder or result of a training to go on with, to the number of steps of its
            config. What is given beside it (`env`, `config`, changes) may differ in the length
            alone, or where it has an environment that its process alone had, in `env`. Seed and
            threads are those of what it goes on with. Its weights are, to the bit, those of a
            training that was never interrupted.
        **changes: further sections and keys of the model. The length is `train={"steps": 2000}` of
            allo, `{"turns": ...}` of iqn, else `{"transitions": ...}`.

    Returns:
        The result: `.scores`, `.history`, `.plots()`, `.predict()`, `.save()` and what it is made
        of.

    Raises:
        ConfigError: a name, a key or a value cannot be used, or a thread of this process computes
            with another device or other `threads`; one line says why. It is a ValueError.
        DataError: `dataset` is not one of this model, or was collected under another config; or an
            environment of the user's own cannot be made, or raised; or `folder` holds other files,
            or a result that is not gone on with.
        PackageMissing: jax or torch is not installed; the line has the command that installs it.
        DeviceMissing: there is no such device.
        TrainingDiverged: a value is not finite; the line names step, term and the key to change.

    Example:
        >>> result = quatrain.fit("allo", env={"layout": "room4"}, train={"steps": 2000})
        >>> result.scores["cosine_mean"]
        >>> result.plots()["vectors"]
    """
    if env is not None:
        changes["env"] = env
    shared = {"seed": seed, "device": device, "threads": threads}
    watch = watching(progress, callback, checkpoint_every, folder)
    check_unfinished(watch.folder, resume_from)
    if resume_from is None:
        params = params_from(model, preset, config, changes, shared)
        return train_and_score(untrained(params, model, dataset), watch)
    if dataset is not None:
        raise ConfigError("resume_from has a dataset already; leave out dataset")
    interrupted = resume_from if isinstance(resume_from, Result) else load(resume_from)
    if interrupted.model != model:
        raise ConfigError(f"resume_from is a result of {interrupted.model}, not of {model}")
    for name in ("seed", "threads"):
        trained = getattr(interrupted.params, name)
        if shared[name] not in (None, trained):
            raise ConfigError(
                f"{name} is {shared[name]!r}, and resume_from was trained with {trained}; leave it "
                "out, or train anew"
            )
        shared[name] = trained
    if config is None and preset is None:
        if env is not None:
            changes["env"] = env_keys(env)
        params = with_changes(interrupted.params, model, changes, **shared)
    else:
        params = params_from(model, preset, config, changes, shared)
    return train_and_score(continued(interrupted, params), watch)


def params_from(
    model: str,
    preset: str | None,
    config: Any,
    changes: Mapping[str, Any],
    shared: Mapping[str, Any],
) -> Params:
    """Returns the Params of a whole config or, if that is None, of a preset with changes.

    shared: the keys that all models share; None: as in params.yaml.

    Raises:
        ConfigError: as `fit`.
    """
    defaults = read_defaults(None)
    shared = {key: defaults[key] if value is None else value for key, value in shared.items()}
    if config is None:
        return make_params(model, preset, changes, **shared)
    if preset is not None or changes:
        raise ConfigError(
            f"config is complete, so that {', '.join(changes) or 'preset'} has no place beside it; "
            "give it to quatrain.config, or leave config out"
        )
    return params_with(model, config, **shared)


def evaluate(
    result: Result, *, seed: int | None = None, dataset: Any = None, env: Any = None
) -> dict[str, float]:
    """Scores a trained model again: on its own held-out data, on other data, or elsewhere.

    Observations are scaled as in the training. An environment of the user's own is made.

    Args:
        result: what `quatrain.fit` or `quatrain.load` returned; it is not changed.
        seed: draws other held-out data of the same environment; None: those of the result.
        dataset: data to score on, such as `.dataset` of a result of the same config.
        env: changes of the environment, or another one, as in `quatrain.fit`; data are collected
            in it.

    Returns:
        The scores by name, as `result.scores`.

    Raises:
        ConfigError: `env` or `seed` cannot be used, or `result` is none.
        DataError: the model cannot be scored on these data: they are of another form; or `seed`
            is given for a recording, or where the seed drew the system itself (active_dynamics), or
            numbered the states that walks visit (allo in an environment of the user's own).

    Example:
        >>> quatrain.evaluate(result, seed=7)["return_mean"]
        >>> quatrain.evaluate(result, env={"spawn_probability": 0.01})["return_mean"]
    """
    check_type("result", result, Result, "what quatrain.fit or quatrain.load returned")
    if seed is not None:
        check_seed(seed)
    if dataset is not None and env is not None:
        raise ConfigError("dataset and env exclude each other: data are collected in an env")
    model = result.model
    modules = load_modules(model)
    config = result.config
    if env is not None:
        config = getattr(with_changes(result.params, model, {"env": env_keys(env)}), model)
    drawn = result.seed if seed is None else seed
    with computing(result.params, model):
        try:
            if env is not None:
                dataset = modules.collect.collect(config, derive_seed(drawn, "collect", model))
            elif dataset is None:
                dataset = held_out_again(result, seed)
            check_dataset(model, dataset, modules.collect.dataset_type(config))
            modules.collect.check(config, dataset)
            state = state_for(result, config, dataset)
        except DataError:
            raise
        except ValueError as error:
            raise DataError(
                f"{model} was trained in another form of environment: {error}"
            ) from None
        seed = derive_seed(drawn, "evaluate", model)
        evaluation: Evaluation = modules.evaluate.evaluate(config, state, dataset, seed)
        return evaluation.scores


def state_for(result: Result, config: Any, dataset: Any) -> Any:
    """Returns the trained state, for the data of an environment where its weights fit.

    Raises:
        ValueError: they do not fit.
    """
    if not config.brings_env:
        train = load_modules(result.model).train
        return train.from_arrays(config, dataset, train.to_arrays(result.state))
    # Running episodes do not matter; a learner fits wherever observations and actions are alike.
    trained, actual = (
        each.interface.restored._replace(max_episode_steps=0)._asdict()
        for each in (result.dataset, dataset)
    )
    if config.is_recorded:  # largest recorded actions are no bounds
        bounds = ("action_low", "action_high")
        trained, actual = (
            {name: len(value) if name in bounds else value for name, value in each.items()}
            for each in (trained, actual)
        )
    others = [name for name in trained if trained[name] != actual[name]]
    if others:
        forms = [f"{name.replace('_', ' ')} {trained[name]}" for name in others]
        elsewhere = [str(actual[name]) for name in others]
        raise ValueError(f"{', '.join(forms)}, where {config.env.name} has {', '.join(elsewhere)}")
    return result.state


def held_out_again(result: Result, seed: int | None) -> Any:
    """Returns the dataset with held-out data from another seed; None: as it is.

    Raises:
        DataError: held-out data do not belong to the data that the model was trained on.
    """
    if seed is None:
        return result.dataset
    if result.config.is_recorded:
        raise DataError(
            f"{result.config.env.path} is a recording, of which no seed draws other held-out data; "
            "leave out seed, or pass env with another path"
        )
    modules = load_modules(result.model)
    other = modules.collect.collect(result.config, derive_seed(seed, "collect", result.model))
    if not is_of_one_system(result.dataset, other):
        raise DataError(
            f"{result.model} draws the system itself, or numbers its states, by the seed, so that "
            "there are no other held-out data for this result; leave out seed, or pass dataset"
        )
    return result.dataset._replace(held_out=other.held_out)


def is_of_one_system(dataset: Any, other: Any) -> bool:
    """Returns whether two datasets have in common what their training and held-out data share."""
    parts = [
        flatten(each._replace(train=np.zeros(0), held_out=np.zeros(0))) for each in (dataset, other)
    ]
    first, second = parts
    return first.keys() == second.keys() and all(
        np.array_equal(array, second[name]) for name, array in first.items()
    )
