"""a trained model with its data and scores <-> a folder; figures, films and answers."""

import math
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, partial
from html import escape
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from quatrain import serving
from quatrain.animation import Animation
from quatrain.api import own_episodes
from quatrain.api.configs import as_path, read_defaults, validated
from quatrain.api.session import computing
from quatrain.devices import framework_on_device
from quatrain.errors import ConfigError, DataError
from quatrain.frameworks.packing import flatten, to_dataset
from quatrain.memory import lack_explained
from quatrain.params import Params
from quatrain.plots import Figure
from quatrain.progress import Evaluation, History
from quatrain.registry import MODELS
from quatrain.registry import load as load_modules
from quatrain.seeds import derive_seed
from quatrain.serving import Served
from quatrain.storage import folders, history
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.disk_errors import raised_as_disk_error
from quatrain.storage.formats import null_if_not_finite

DATASET = "dataset.safetensors"
SCORES = "scores.json"
# What the folder of every trained model holds.
FILES = ("config.json", "history.csv", "state.safetensors", "weights.safetensors")
# What `Result.save` writes; no other file of a folder is touched.
SAVED = (*FILES, DATASET, SCORES, folders.MANIFEST)
REMEDY = "save it again with result.save(), or restore it with `dvc checkout`"


class Film(NamedTuple):
    """Holds an animation as GIF, and a sentence about it; notebooks show it."""

    gif: bytes
    caption: str

    def save(self, path: str | Path) -> Path:
        """Writes the GIF file; returns its path.

        Raises:
            ConfigError: the path has another ending than .gif.
            DiskError: it cannot be written.
        """
        file = as_path(path)
        if file.suffix != ".gif":
            raise ConfigError(f"{file}: a film is saved as GIF; name a file that ends with .gif")
        with raised_as_disk_error():
            write_durably(file, self.gif)
        return file

    def __repr__(self) -> str:
        return f"<quatrain.Film of {len(self.gif):,} bytes: {self.caption}>"

    def _repr_html_(self) -> str:
        return f'<img src="data:image/gif;base64,{b64encode(self.gif).decode()}">'


class Result:
    """Holds a trained model: config, data, state, history and scores.

    Attributes:
        model: its name.
        params: the config, and the settings that all models share.
        dataset: what it was trained and scored on, a NamedTuple of arrays.
        state: everything that changed while it learned.
        history: name of a metric -> steps and values, two arrays.
        step: how far it was trained; `config.train.steps` if to the end.
    """

    def __init__(
        self,
        model: str,
        params: Params,
        dataset: Any,
        state: Any,
        history: History,
        scores: Mapping[str, float] | None = None,
        *,
        step: int,
    ) -> None:
        self.model = model
        self.params = params
        self.dataset = dataset
        self.state = state
        self.history = dict(history)
        self.step = step
        if scores is not None:
            self.scores = dict(scores)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what is made again when it is asked for, and cannot be pickled."""
        cached = {"_rows", "_served", "encoder"}
        return {name: value for name, value in vars(self).items() if name not in cached}

    @property
    def config(self) -> Any:
        """Returns the model's config."""
        return getattr(self.params, self.model)

    @property
    def seed(self) -> int:
        """Returns the seed that collection, training and evaluation derive theirs from."""
        return self.params.seed

    @cached_property
    def scores(self) -> dict[str, float]:
        """Returns the scores on held-out data by name, beside those of reference policies."""
        return dict(self._evaluation.scores)

    @cached_property
    def _evaluation(self) -> Evaluation:
        with computing(self.params, self.model):
            evaluation: Evaluation = self._modules.evaluate.evaluate(
                self.config,
                self.state,
                self.dataset,
                derive_seed(self.seed, "evaluate", self.model),
            )
        return evaluation

    @property
    def judged_scores(self) -> dict[str, float]:
        """Returns the scores that the pipeline compares with a baseline."""
        names = [gated.metric for gated in self._modules.rules.gated(self.config)]
        return {name: self.scores[name] for name in names if name in self.scores}

    @property
    def _shown_scores(self) -> dict[str, float]:
        """Returns the judged scores, in an environment of the user with the return; none where they
        are not computed: showing computes nothing, as scoring makes the environment that a loaded
        folder names.
        """
        if "scores" not in vars(self):
            return {}
        names = {"return_mean"} & self.scores.keys() if self.config.brings_env else ()
        return self.judged_scores | {name: self.scores[name] for name in names}

    def plots(self) -> dict[str, Figure]:
        """Draws the figures of the report by name.

        Example:
            >>> result.plots()["vectors"].savefig("vectors.png")
        """
        pictures = self._pictures().items()
        return {name: picture for name, picture in pictures if not isinstance(picture, Animation)}

    def films(self) -> dict[str, Film]:
        """Returns the animations of the report by name; a model may have none.

        Example:
            >>> result.films()["episode"].save("episode.gif")
        """
        return {
            name: Film(picture.gif(picture.caption), picture.caption)
            for name, picture in self._pictures().items()
            if isinstance(picture, Animation)
        }

    def _pictures(self) -> Mapping[str, Figure | Animation]:
        evaluation = self._evaluation._replace(scores=dict(self.scores))
        with computing(self.params, self.model):
            return self._modules.plots.plots(
                self.config, self.state, self.dataset, self.history, evaluation
            )

    def train(
        self,
        more: int,
        *,
        callback: Callable[[Any], Any] | None = None,
        checkpoint_every: int | None = None,
        folder: str | Path | None = None,
        progress: bool = True,
    ) -> "Result":
        """Returns the result after more training; this one stays as it is.

        It goes on as a training of the longer length does from here: schedules over the whole
        length (`lr_schedule: cosine` of allo; learning rate, entropy and discount of actor_critic)
        and the number of validation episodes become those of the longer one.

        Args:
            more: in the unit of the model's length: gradient steps of allo, turns of iqn,
                transitions of actor_critic.
            callback: as in `quatrain.fit`.
            checkpoint_every: as there.
            folder: as there.
            progress: as there.

        Raises:
            ConfigError: an argument cannot be used, or the model cannot train longer.
        """
        from quatrain.api import learning

        watch = learning.watching(progress, callback, checkpoint_every, folder)
        return learning.train_and_score(learning.lengthened(self, more), watch)

    def predict(self, request: Any, deterministic: bool = True, info: Any = None) -> Any:
        """Returns actions for observations, or answers a request as a served model does.

        Args:
            request: an observation of the user's own environment, or a batch of them, as the
                environment returns them; of several agents name -> observation. Or name -> array or
                nested lists, of the form of `example_request()`, whose first axis counts questions.
            deterministic: False: actions are drawn, by a generator of this result: from the
                distribution of actor_critic; of iqn at random with probability `epsilon.end`.
            info: what the environment returned beside the observation (a list of a batch), where
                it holds the action masks.

        Returns:
            Of observations: the action as the environment takes it, a batch of them, or name ->
            action. Of a request: name -> array with an answer to each question; the model's module
            `serve` tells what inputs and outputs mean.

        Raises:
            ValueError: the request does not fit, or has so large numbers that an answer is not
                finite; one line says what would.

        Example:
            >>> result.predict(env.reset()[0])
            >>> result.predict(result.example_request())
        """
        served = self._served
        is_request = isinstance(request, Mapping) and not served.inputs.keys().isdisjoint(request)
        acts = self.config.brings_env and "observations" in served.inputs and not is_request
        if acts and self.config.env.kind != "recording":
            return own_episodes.act(self, request, info, partial(self._answer, deterministic))
        return self._answer(deterministic, request)

    def _answer(self, deterministic: bool, request: Any) -> dict[str, np.ndarray]:
        needs = partial(self._modules.memory.needs, self.config)
        draws = None if deterministic else self._draws
        with (
            framework_on_device(self.params, MODELS[self.model]),
            lack_explained(self.model, needs),
        ):
            return serving.answer(self.model, self._served, request, draws)

    @cached_property
    def _draws(self) -> np.random.Generator:
        return np.random.default_rng(derive_seed(self.seed, "predict", self.model))

    @cached_property
    def _rows(self) -> Mapping[str, Any]:
        return own_episodes.rows_of(self.config)

    @property
    def spaces(self) -> Mapping[str, Any]:
        """Returns the spaces of each agent of the user's environment, which is made for it."""
        return {name: rows.spaces for name, rows in self._rows.items()}

    def evaluate(self, episodes: int = 100, seed: int | None = None) -> own_episodes.Played:
        """Plays fresh episodes of the user's environment by the learned policy of the first seed.

        Args:
            episodes: how many; a single one has no interval (NaN).
            seed: draws how they begin; None: the result's, so that they are always the same.

        Returns:
            Returns and lengths, the mean return, and its 95 % interval over episodes.

        Raises:
            ConfigError: the model does not act in an environment of a user.
            DataError: the environment cannot be made, or raised.
        """
        return own_episodes.evaluate(self, episodes, self.seed if seed is None else seed)

    def film(self, seed: int | None = None) -> Film:
        """Returns an episode of the user's environment by the learned policy of the first seed, as
        the environment renders it; seed: as in `evaluate`.

        Raises:
            ConfigError: the model does not act in an environment of a user.
            DataError: the environment does not render arrays, cannot be made, or raised.
        """
        picture = own_episodes.film(self, self.seed if seed is None else seed)
        return Film(picture.gif(picture.caption), picture.caption)

    @cached_property
    def encoder(self) -> Callable[[Any], np.ndarray]:
        """Returns the learned representation: a function of observations, of one or of a batch, to
        float32 vectors (batch, d).

        Raises:
            ConfigError: the model learns none; allo does.

        Example:
            >>> result.encoder(env.observation_space.sample()).shape
        """
        serve = self._modules.serve
        if not hasattr(serve, "encoder"):
            raise ConfigError(f"{self.model} has no encoder; fit allo to learn one")
        with computing(self.params, self.model):
            arrays = serve.export(self.config, self.state, self.dataset)
            vectors = serve.encoder(self.config, arrays)

        def encode(observations: Any) -> np.ndarray:
            with framework_on_device(self.params, MODELS[self.model]):
                encoded: np.ndarray = vectors(observations)
                return encoded

        return encode

    def example_request(self) -> dict[str, np.ndarray]:
        """Returns a request with a few questions, which `predict` answers."""
        with computing(self.params, self.model):
            return self._modules.serve.request(self.config, self.dataset)

    def save(self, folder: str | Path) -> Path:
        """Writes the result to a folder that `quatrain.load` reads; returns the folder.

        The files are safetensors, JSON and CSV with their hashes; nothing is pickled. They are
        written whole or not at all. A folder that holds anything else is refused.

        Raises:
            FolderError: the folder holds other files, or an array is not finite.
            DiskError: the folder cannot be written, or something is in its place; an older result
                is untouched. It is an OSError.

        Example:
            >>> result.save("runs/allo")
            >>> quatrain.load("runs/allo").scores == result.scores
            True
        """
        path = as_path(folder)
        self.scores  # noqa: B018  computed for the folder
        self.write(path)
        return path

    def write(self, path: Path) -> None:
        """Writes what there is, as `save` does: scores only where they are computed."""
        with computing(self.params, self.model):
            arrays = self._modules.train.to_arrays(self.state)
        prefixes = self._modules.train.WEIGHTS
        weights = {name: array for name, array in arrays.items() if name.startswith(prefixes)}
        rest = {name: array for name, array in arrays.items() if name not in weights}
        curves = {
            name: list(zip(steps.tolist(), values.tolist(), strict=True))
            for name, (steps, values) in self.history.items()
        }
        contents = {
            "weights.safetensors": weights,
            "state.safetensors": rest,
            DATASET: flatten(self.dataset),
            "config.json": self.config.model_dump(mode="json"),
            "history.csv": history.to_csv(curves),
        }
        if "scores" in vars(self):
            contents[SCORES] = null_if_not_finite(self.scores)
        shared = self.params.model_dump(include={"seed", "threads"}) | {"step": self.step}
        with raised_as_disk_error():
            folders.save(path, contents, {"model": self.model, **shared}, names=SAVED)

    @property
    def _modules(self) -> Any:
        return load_modules(self.model)

    @cached_property
    def _served(self) -> Served:
        serve = self._modules.serve
        with computing(self.params, self.model):
            return serve.load(self.config, serve.export(self.config, self.state, self.dataset))

    def __repr__(self) -> str:
        scores = ", ".join(f"{name}={value:.4g}" for name, value in self._shown_scores.items())
        return f"<quatrain.Result of {self.model}, seed {self.seed}: {scores}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{value:.4f}</td></tr>"
            for name, value in self._shown_scores.items()
        )
        title = f"{escape(self.model)}, seed {self.seed}"
        return f"<table><tr><th>{title}</th><th>score</th></tr>{rows}</table>"


def load(path: str | Path, device: str = "auto") -> Result:
    """Returns a result from a folder that `Result.save` or the pipeline (models/MODEL) wrote.

    Files are verified against their hashes, and nothing in them is executed: an environment of the
    user's own, which the config names, is not imported by this function, nor by `predict` of a
    request, `example_request` and `repr` of the result. `predict` of observations, `spaces` and
    what plays episodes make it: `evaluate`, `film`, `plots`, and `scores` where the folder holds
    none. A folder of the pipeline needs data/MODEL
    beside it; its scores are computed when they are first read.

    Args:
        path: the folder.
        device: `auto`, or a device as in params.yaml (`cpu`, `cuda`): not that of the training.

    Returns:
        The result, as `quatrain.fit` returned it.

    Raises:
        ConfigError: path is none, or there is no such device.
        DataError: a file is missing or damaged, or is of another version; one line says which.
        DiskError: this machine or user cannot read a file. It is an OSError.
        PackageMissing: the model's framework is not installed.

    Example:
        >>> quatrain.load("models/allo").plots()["cosine"]
    """
    folder = as_path(path)
    stored = read_folder(folder, FILES)
    model, trained = read_params(folder, stored)
    params = validated(trained.model_dump() | {"device": device})
    section = getattr(params, model)
    modules = load_modules(model)
    arrays = stored.contents["weights.safetensors"] | stored.contents["state.safetensors"]
    with computing(params, model):
        dataset_arrays = stored.contents.get(DATASET)
        if dataset_arrays is None:
            dataset_arrays = pipeline_dataset(folder, model, stored)
        try:
            dataset = to_dataset(modules.collect.dataset_type(section), dataset_arrays)
            state = modules.train.from_arrays(section, dataset, arrays)
            curves = history.from_csv(stored.contents["history.csv"])
        except ValueError as error:
            raise DataError(f"{folder}: {error}; {REMEDY}") from None
    scores = stored_scores(folder, stored.contents.get(SCORES))
    step = stored.info.get("step", section.train.steps)
    return Result(model, params, dataset, state, curves, scores, step=step)


def stored_scores(folder: Path, content: Any) -> dict[str, float] | None:
    """Returns the scores of scores.json, NaN where it has null; None without the file.

    Raises:
        DataError: it does not map names to numbers.
    """
    if content is None:
        return None
    if not isinstance(content, Mapping) or {*map(type, content.values())} - {int, float, NoneType}:
        raise DataError(f"{folder}/{SCORES}: does not map names to numbers; {REMEDY}")
    return {name: math.nan if score is None else float(score) for name, score in content.items()}


def read_folder(folder: Path, needed: Collection[str]) -> folders.Loaded:
    """Returns the verified contents of a folder, the files `needed` among them.

    Raises:
        DataError: it is missing or damaged.
    """
    try:
        with raised_as_disk_error():
            if not folder.is_dir():
                raise DataError(f"{folder}: no such folder; give one that result.save() wrote")
            return folders.load(folder, needed)
    except folders.FolderError as error:
        raise DataError(f"{error}; {REMEDY}") from None


def read_params(folder: Path, stored: folders.Loaded) -> tuple[str, Params]:
    """Returns the model whose config a folder holds, and the Params of its training.

    Raises:
        DataError: it holds no config of a model, or does not tell seed and threads.
    """
    model = stored.info.get("model", folder.resolve().name)
    trained: Any = stored.info if "model" in stored.info else stored.info.get("params")
    try:
        values = {name: trained[name] for name in ("seed", "threads")}
    except (KeyError, TypeError):
        reason = "the manifest does not tell seed and threads of the training"
        raise DataError(f"{folder}: {reason}; {REMEDY}") from None
    if not isinstance(model, str) or model not in MODELS:
        raise DataError(f"{folder}: holds no trained model; {REMEDY}")
    try:
        values[model] = stored.contents["config.json"]
        return model, validated(read_defaults(None) | values)
    except ConfigError as error:
        raise DataError(f"{folder}: was saved by another version: {error}; {REMEDY}") from None


def pipeline_dataset(folder: Path, model: str, stored: folders.Loaded) -> dict[str, np.ndarray]:
    """Returns the arrays of data/MODEL beside models/MODEL.

    Raises:
        DataError: they are missing or damaged, or the model was trained on others.
    """
    if "model" in stored.info:
        raise DataError(f"{folder}: files that are missing: {[DATASET]}; {REMEDY}")
    data = folder.resolve().parent.parent / "data" / model
    loaded = read_folder(data, [DATASET])
    if stored.info.get("dataset") != loaded.digest:
        raise DataError(f"{folder}: was trained on another dataset than {data} holds; {REMEDY}")
    return loaded.contents[DATASET]
