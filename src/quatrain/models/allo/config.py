"""params.yaml's section `allo` -> a frozen, checked config with an existing map."""

from typing import ClassVar, Literal

from pydantic import Field

from quatrain.envs.grid.config import MAX_STATES, Env
from quatrain.envs.grid.layouts import LayoutError, count_states
from quatrain.envs.host.config import EPISODE, FLAGS, RecordableEnv
from quatrain.section import ModelSection, Section, at_most, distinct, multiple

# Limit of what is counted in a buffer, a dense matrix of pairs. With 2 million transitions 4000
# states take 35 s of one core; each further million takes 9 s, with 1000 states 2.5 s.
COUNTED_STATES = 4000
# Limit of samples drawn at once, over all learners: 4 GB of states and random numbers.
MAX_DRAWN = 10**8
# Upper limit of coefficients and rates, about the largest float32.
LARGEST = 1e38

Discount = float | tuple[float, ...]


class Collect(Section):
    """Sets how many walks fill the replay buffer."""

    num_envs: int = Field(ge=1, le=10**6, description="parallel environments")
    steps_per_env: int = Field(ge=1, le=10**6, description="transitions of each environment")
    held_out_fraction: float = Field(
        ge=0,
        le=0.5,
        description="further environments, as a fraction of num_envs, for evaluation only",
    )

    @property
    def held_out_envs(self) -> int:
        return round(self.held_out_fraction * self.num_envs)

    def check(self) -> None:
        transitions = self.num_envs * self.steps_per_env
        if transitions > 10**8:
            raise ValueError(
                f"num_envs * steps_per_env = {transitions:,} transitions; at most 100,000,000"
            )
        if self.held_out_fraction > 0 and self.held_out_envs == 0:
            raise ValueError(
                f"held_out_fraction {self.held_out_fraction} of {self.num_envs} environments "
                "is none; raise num_envs or set it to 0"
            )


class Network(Section):
    """Sets the size of the encoder, state -> R^d."""

    d: int = Field(ge=1, le=1000, description="outputs: how many eigenvectors are learned")
    hidden: int = Field(ge=1, le=4096, description="units of a hidden layer")
    layers: int = Field(ge=1, le=16, description="hidden layers")


class Train(Section):
    """Sets the augmented Lagrangian and its optimisation."""

    discount: Discount = Field(
        description="γ of the geometric lag; a list is a mixture: each pair draws one of them, "
        "one that is listed twice twice as often"
    )
    batch_size: int = Field(ge=1, le=10**6)
    steps: int = Field(ge=1, le=10**9, description="gradient steps")
    learning_rate: float = Field(gt=0, le=10)
    lr_schedule: Literal["constant", "cosine"]
    lr_final: float = Field(gt=0, le=1, description="cosine ends at learning_rate * lr_final")
    graph_coef: float = Field(gt=0, le=LARGEST, description="κ, weight of the smoothness term")
    constraint: Literal["two", "three", "visits"] = Field(
        description="how many encoder batches estimate graph and constraints; visits: constraints "
        "are sums over all states, weighted by how often each starts a pair, without sampling noise"
    )
    dual_init: float = Field(ge=-1e6, le=1e6)
    dual_init_mask: Literal["lower", "diagonal"] = Field(
        description="which duals start at dual_init"
    )
    lr_dual: float = Field(ge=0, le=LARGEST)
    dual_clip: float | None = Field(
        gt=0, le=LARGEST, description="duals stay within ±dual_clip; null: no limit"
    )
    b_init: float = Field(ge=0, le=LARGEST, description="initial barrier coefficient b")
    b_max: float = Field(ge=0, le=LARGEST)
    lr_barrier: float = Field(ge=0, le=LARGEST)
    barrier_update: Literal["abs", "positive_ema"]
    seed_parallelism: Literal["auto", "vmap", "scan"] = Field(
        description="seeds of a device learn vectorised, or in a loop, whose bits are the same on "
        "any number of devices; auto: scan on a CPU, else vmap"
    )
    record_every: int = Field(
        ge=1, description="steps per record, and per call of the compiled program"
    )
    evaluate_every: int = Field(
        ge=1, description="steps between two comparisons with the truth; one at the end at least"
    )

    @property
    def discounts(self) -> tuple[float, ...]:
        """Returns the components of the mixture."""
        return self.discount if isinstance(self.discount, tuple) else (self.discount,)

    @property
    def constraint_batches(self) -> int:
        """Returns how many independent batches of starts are drawn beside the pairs."""
        return {"two": 1, "three": 2, "visits": 0}[self.constraint]

    def encodes_table(self, states: int) -> bool:
        """Returns whether every state is encoded once: where samples are not fewer, or all are
        needed. Gradients are equal.
        """
        return self.constraint == "visits" or states <= self.samples

    @property
    def samples(self) -> int:
        """Returns how many states a step draws."""
        return (2 + self.constraint_batches) * self.batch_size

    def check(self) -> None:
        if not self.discounts or not all(0 <= g <= 1 for g in self.discounts):
            raise ValueError(
                f"discount {self.discount} must be a number, or a list of numbers, in 0..1"
            )
        multiple(self, "steps", "record_every")
        multiple(self, "evaluate_every", "record_every")
        at_most(self, "b_init", "b_max")


class Evaluate(Section):
    """Sets how the learned table is compared with the true eigenvectors."""

    degeneracy_tol: float = Field(
        ge=0,
        le=0.2,
        description="neighbouring eigenvalues closer than this, relatively, are one group",
    )


class AlloConfig(ModelSection):
    WORLD = "quatrain.models.allo.grid"
    LENGTH = "steps"

    seeds: int = Field(ge=1, le=1024, description="learners trained side by side on the same data")
    env: Env
    collect: Collect
    network: Network
    train: Train
    evaluate: Evaluate

    @property
    def knows_truth(self) -> bool:
        """Returns whether vectors are judged by the true ones, which the states of a map and cells
        always have; else by what held-out pairs tell.
        """
        return True

    def check(self) -> None:
        drawn = self.train.record_every * self.train.batch_size * self.seeds
        if drawn > MAX_DRAWN:
            raise ValueError(
                f"record_every * batch_size * seeds = {drawn:,} samples are drawn at once; "
                f"at most {MAX_DRAWN:,}"
            )
        if not self.brings_env:
            self._check_map()

    def _check_map(self) -> None:
        states = count_states(self.env.map)
        # All but the goal can start a pair.
        starts = states - (self.env.map.goal is not None)
        if self.network.d > starts:
            besides = "" if starts == states else " beside its goal, where no pair starts"
            raise LayoutError(
                f"d={self.network.d} but the map has only {starts} states{besides}; "
                "lower allo.network.d"
            )
        if states > MAX_STATES:
            raise LayoutError(f"the map has {states:,} states; at most {MAX_STATES:,}")
        if states > COUNTED_STATES:
            self._check_large(states)

    def _check_large(self, states: int) -> None:
        """Refuses what needs a matrix of all pairs of states, or a walk that is not symmetric."""
        env = self.env
        needs = {
            "one-way doors": bool(env.map.doors),
            "a goal": env.map.goal is not None,
            "start: layout": env.start == "layout" and env.map.start is not None,
        }
        for name, needed in needs.items():
            if needed:
                raise LayoutError(
                    f"the map has {states:,} states; {name} needs a matrix of all pairs of states, "
                    f"which is built for at most {COUNTED_STATES:,}; leave it out or shrink the map"
                )


class UserEnv(RecordableEnv):
    """Sets a user's environment, or recorded walks, and which observations count as one state."""

    OF_FILES: ClassVar = {"columns": None}

    columns: tuple[str, ...] | None = Field(
        min_length=1,
        description="of a .csv file those that are observed; null: all but the ends of episodes",
    )
    bins: int | None = Field(
        ge=2,
        le=1000,
        description="cells on each axis of the observed box, whose observations count as one "
        "state; null: each different observation, where they repeat and are at most "
        f"{COUNTED_STATES}; else nothing is counted, and there is no truth to compare with",
    )

    def check(self) -> None:
        super().check()
        distinct("columns and ends of episodes", (*(self.columns or ()), EPISODE, *FLAGS))
        if self.columns and not str(self.path).endswith(".csv"):
            raise ValueError(
                f"columns are of a .csv file, and path is {self.path}; set columns: null"
            )


class AlloUserEnvConfig(AlloConfig):
    WORLD = "quatrain.models.allo.user_env"
    brings_env = True

    env: UserEnv  # type: ignore[assignment]

    def check(self) -> None:
        super().check()
        if not self.knows_truth and self.collect.held_out_fraction == 0:
            raise ValueError(
                "collect.held_out_fraction 0: walks without counted states are judged by held-out "
                "ones; set it to 0.1, or count cells (env.bins)"
            )

    @property
    def knows_truth(self) -> bool:
        return self.env.bins is not None
