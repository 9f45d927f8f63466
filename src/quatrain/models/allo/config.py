"""params.yaml's section `allo` -> a frozen config whose map exists and whose numbers fit together."""

from functools import lru_cache
from typing import Literal

from pydantic import Field, model_validator

from quatrain.envs.grid.catalogue import maze, named_layout, rooms
from quatrain.envs.grid.layouts import (
    Components,
    Layout,
    LayoutError,
    count_states,
    keep_components,
    parse_layout,
    with_random_doors,
)
from quatrain.section import InputFile, NameOrFile, Section

MAX_STATES = 4000
"""Truth and floors use dense eigendecompositions: 4000 states cost about a minute."""

MAX_DRAWN = 10**8
"""Samples of one record, of all learners: 4 GB of states with their random numbers."""
LARGEST = 1e38
"""Of coefficients and rates: what float32 holds."""

Discount = float | tuple[float, ...]


class Rooms(Section):
    """Numbers of the generator behind `layout: rooms`."""

    rows: int = Field(ge=1, le=64, description="rooms from top to bottom")
    cols: int = Field(ge=1, le=64, description="rooms from left to right")
    height: int = Field(ge=1, le=64, description="free cells of a room from top to bottom")
    width: int = Field(ge=1, le=64, description="free cells of a room from left to right")
    extra_doors: int = Field(ge=0, description="doors beyond those of the spanning tree")
    seed: int = Field(ge=0, lt=2**32)

    @model_validator(mode="after")
    def _few_enough_cells(self) -> "Rooms":
        if (cells := self.rows * self.cols * self.height * self.width) > MAX_STATES:
            raise ValueError(f"{cells:,} cells; at most {MAX_STATES} can be compared with the truth")
        return self


class Maze(Section):
    """Numbers of the generator behind `layout: maze`."""

    width: int = Field(ge=5, le=199, description="cells, odd")
    height: int = Field(ge=5, le=199, description="cells, odd")
    braid: float = Field(ge=0, le=1, description="probability that a dead end is opened")
    seed: int = Field(ge=0, lt=2**32)


class Fourier(Section):
    """Random Fourier features of a cell's centred coordinates: [x, y, sin(B xy), cos(B xy)], B ~ N(0, scale²)."""

    scale: float = Field(gt=0, le=100)
    count: int = Field(ge=1, le=4096, description="rows of B; the encoder then sees 2 + 2*count inputs")


class Env(Section):
    """The grid world that is walked."""

    layout: NameOrFile = Field(description="a catalogue name, `rooms`, `maze`, or a path such as inputs/allo/map.txt")
    layout_components: Components = Field(description="which connected components of the map are kept")
    rooms: Rooms | None = Field(description="only with layout: rooms, else null")
    maze: Maze | None = Field(description="only with layout: maze, else null")
    doors: int = Field(ge=0, description="random one-way doors beyond those that the map draws")
    door_seed: int = Field(ge=0, lt=2**32)
    observation: Literal["centred", "corner", "paper", "onehot", "fourier"] = Field(
        description="what the encoder sees of a cell"
    )
    fourier: Fourier | None = Field(description="only with observation: fourier, else null")
    start: Literal["uniform", "layout"] = Field(
        description="where a trajectory begins; layout: at S if the map has one"
    )
    max_episode_steps: int = Field(ge=1, le=10**7, description="transitions after which a trajectory is truncated")

    @property
    def map(self) -> Layout:
        """The layout with its doors, reduced to the components that are kept.

        Raises:
            LayoutError: the map cannot be read or does not fit the other keys.
        """
        return _map(self)

    @model_validator(mode="after")
    def _generators_come_with_their_layout(self) -> "Env":
        for key, chosen in (("rooms", self.layout), ("maze", self.layout), ("fourier", self.observation)):
            given, wanted = getattr(self, key) is not None, chosen == key
            if wanted and not given:
                raise ValueError(f"'{key}' is chosen but its numbers are null; give {key}: {{...}}")
            if given and not wanted:
                raise ValueError(f"{key}: {{...}} has no effect with {chosen!r}; set it to null or choose '{key}'")
        return self


def count_starts(layout: Layout) -> int:
    """States at which a pair can start, so at most so many components can be told apart: all but the goal."""
    return count_states(layout) - (layout.goal is not None)


@lru_cache(maxsize=16)
def _map(env: Env) -> Layout:
    if isinstance(env.layout, InputFile):
        layout = parse_layout(env.layout.text, env.layout.name)
    elif env.layout == "rooms" and env.rooms is not None:
        layout = rooms(**env.rooms.model_dump())
    elif env.layout == "maze" and env.maze is not None:
        layout = maze(**env.maze.model_dump())
    else:
        layout = named_layout(env.layout)
    return with_random_doors(keep_components(layout, env.layout_components), env.doors, env.door_seed)


class Collect(Section):
    """How many walks fill the replay buffer."""

    num_envs: int = Field(ge=1, le=10**6, description="walkers")
    steps_per_env: int = Field(ge=1, le=10**6, description="transitions of each walker")
    held_out_fraction: float = Field(ge=0, le=0.5, description="further walkers whose data only evaluate")

    @property
    def held_out_envs(self) -> int:
        """Walkers of the held-out part."""
        return round(self.held_out_fraction * self.num_envs)

    @model_validator(mode="after")
    def _held_out_walkers_exist(self) -> "Collect":
        if self.num_envs * self.steps_per_env > 10**8:
            raise ValueError(
                f"num_envs * steps_per_env = {self.num_envs * self.steps_per_env:,} transitions; at most 100,000,000"
            )
        if self.held_out_fraction > 0 and self.held_out_envs == 0:
            raise ValueError(
                f"held_out_fraction {self.held_out_fraction} of {self.num_envs} walkers is none; "
                "raise num_envs or set it to 0"
            )
        return self


class Network(Section):
    """The encoder: state -> R^d."""

    d: int = Field(ge=1, le=1000, description="outputs: how many eigenvectors are learned")
    hidden: int = Field(ge=1, le=4096, description="units of a hidden layer")
    layers: int = Field(ge=1, le=16, description="hidden layers")


class Train(Section):
    """The augmented Lagrangian and its optimisation."""

    discount: Discount = Field(description="γ of the geometric lag; a list is a mixture, each pair draws one of it")
    batch_size: int = Field(ge=1, le=10**6)
    steps: int = Field(ge=1, le=10**9, description="gradient steps")
    learning_rate: float = Field(gt=0, le=10)
    lr_schedule: Literal["constant", "cosine"]
    lr_final: float = Field(gt=0, le=1, description="cosine ends at learning_rate * lr_final")
    graph_coef: float = Field(gt=0, le=LARGEST, description="κ, weight of the smoothness term")
    constraint: Literal["two", "three"] = Field(description="how many encoder batches estimate graph and constraints")
    dual_init: float = Field(ge=-1e6, le=1e6)
    dual_init_mask: Literal["lower", "diagonal"] = Field(description="which duals begin at dual_init")
    lr_dual: float = Field(ge=0, le=LARGEST)
    dual_clip: float | None = Field(gt=0, le=LARGEST, description="duals stay within ±dual_clip; null: no limit")
    b_init: float = Field(ge=0, le=LARGEST, description="barrier coefficient b at first")
    b_min: float = Field(ge=0, le=LARGEST)
    b_max: float = Field(ge=0, le=LARGEST)
    lr_barrier: float = Field(ge=0, le=LARGEST)
    barrier_update: Literal["abs", "positive_ema"]
    mode: Literal["stochastic", "exact"] = Field(description="exact: pairs replaced by their expectation")
    encoder_rows: Literal["auto", "table", "batch"] = Field(description="encode every state once, or every sample")
    record_every: int = Field(ge=1, description="steps per record, and per call of the compiled program")
    evaluate_every: int = Field(ge=1, description="steps between two comparisons with the truth")

    @property
    def discounts(self) -> tuple[float, ...]:
        """The components of the mixture."""
        return self.discount if isinstance(self.discount, tuple) else (self.discount,)

    @property
    def constraint_batches(self) -> int:
        """Independent batches of starts beside the pairs."""
        return {"two": 1, "three": 2}[self.constraint]

    @model_validator(mode="after")
    def _numbers_fit_together(self) -> "Train":
        if not self.discounts or not all(0 <= g <= 1 for g in self.discounts):
            raise ValueError(f"discount {self.discount} must be a number, or a list of numbers, in 0..1")
        for key in ("steps", "evaluate_every"):
            if getattr(self, key) % self.record_every:
                raise ValueError(f"{key} {getattr(self, key)} is not a multiple of record_every {self.record_every}")
        if self.evaluate_every > self.steps:
            raise ValueError(
                f"evaluate_every {self.evaluate_every} exceeds steps {self.steps}: nothing would be compared"
            )
        if not self.b_min <= self.b_init <= self.b_max:
            raise ValueError(f"b_min {self.b_min} <= b_init {self.b_init} <= b_max {self.b_max} does not hold")
        if self.mode == "exact" and self.encoder_rows == "batch":
            raise ValueError("mode exact needs every state: set encoder_rows to auto or table")
        return self


class Evaluate(Section):
    """How the learned table is compared with the truth."""

    degeneracy_tol: float = Field(
        ge=0, le=0.2, description="neighbouring eigenvalues closer than this, relatively, are one group"
    )


class AlloConfig(Section):
    """Everything an allo run depends on."""

    seeds: int = Field(ge=1, le=1024, description="learners trained side by side on the same data")
    env: Env
    collect: Collect
    network: Network
    train: Train
    evaluate: Evaluate

    @model_validator(mode="after")
    def _samples_fit_into_memory(self) -> "AlloConfig":
        drawn = self.train.record_every * self.train.batch_size * self.seeds
        if drawn > MAX_DRAWN:
            raise ValueError(
                f"record_every * batch_size * seeds = {drawn:,} samples are drawn at once; at most {MAX_DRAWN:,}"
            )
        return self

    @model_validator(mode="after")
    def _map_holds_the_eigenvectors(self) -> "AlloConfig":
        states, starts = count_states(self.env.map), count_starts(self.env.map)
        if self.network.d > starts:
            besides = "" if starts == states else " beside its goal, where no pair starts"
            raise LayoutError(f"d={self.network.d} but the map has only {starts} states{besides}; lower allo.network.d")
        if states > MAX_STATES:
            raise LayoutError(f"the map has {states} states; at most {MAX_STATES} can be compared with the truth")
        return self
