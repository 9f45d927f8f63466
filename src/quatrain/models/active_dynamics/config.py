"""params.yaml -> typed configuration of active_dynamics."""

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from quatrain.envs.host.config import EPISODE, FLAGS, RecordableEnv
from quatrain.envs.vector_field.config import LARGEST, Env, Matrix, Positive
from quatrain.section import ModelSection, Section, among, at_most, below, distinct, fits, multiple

MAX_BYTES = 2**36
MAX_FEATURES = 1024
MAX_STATE = 2048
# Least warm-up from which the directions of the channels are identified.
LEARNED_WARMUP = 1000
# Acquisition value -> what it needs of a learner beside the mean field.
VALUE_NEEDS = {"variance": "covariance", "fisher_a": "joint covariance", "disagreement": "members"}
VALUES = tuple(VALUE_NEEDS)
NonNegative = Annotated[float, Field(ge=0, le=LARGEST)]
Units = Annotated[int, Field(ge=1, le=4096)]
Hold = Annotated[int, Field(ge=1, le=10**6)]
Family = Literal["bayes_filter", "seq_vae"]
Decoder = Literal["known", "linear", "loglinear", "mlp"]
Arm = Literal["active", "random", "step", "prbs"]
ARMS: tuple[str, ...] = get_args(Arm)


class Collect(Section):
    """Holds the sizes of the common start and of the held-out data."""

    warmup: int = Field(ge=1, le=10**6, description="random transitions, which count for each arm")
    held_out_rollouts: int = Field(ge=8, le=65536, description="observed, of 100 transitions")
    starts: int = Field(ge=8, le=65536, description="of rollouts of the true field without noise")


class RbfGrid(Section):
    """Holds the grid of radial basis functions whose weighted sum is the field."""

    side: int = Field(ge=3, le=31, description="centres along each dimension")
    range: Positive = Field(description="they stand on [-range, range]")
    length: Positive = Field(description="width of each")
    prior_field_sd: Positive = Field(description="of the field, before anything is seen")

    def check(self) -> None:
        least = self.range / (2 * (self.side - 1))
        if self.length < least:
            raise ValueError(
                f"length {self.length:g} is below {least:.3g}, a quarter of the centres' distance;"
                " raise it"
            )


class FilterNoise(Section):
    """Holds the noise that bayes_filter assumes; the environment's, in `env`, is not used."""

    process_noise: NonNegative = Field(description="variance per unit of time")
    noise_sd: Positive = Field(description="of known channels with gaussian noise")


class SeqVaeNetwork(Section):
    """Holds the sizes of the sequential variational autoencoder."""

    hidden: Units = Field(description="units of the recurrent encoder")
    head: Units = Field(description="units of the layers behind it, and of an mlp decoder")
    dynamics: Literal["mlp", "rbf", "ensemble"]
    dynamics_hidden: tuple[Units, ...] = Field(min_length=1, max_length=16)
    members: int = Field(ge=1, le=64, description="of an ensemble")

    def check(self) -> None:
        if self.members > 1 and self.dynamics != "ensemble":
            problem = f"members {self.members} with dynamics: {self.dynamics}"
            raise ValueError(f"{problem}; set dynamics: ensemble, or 1")


class Network(Section):
    """Holds the family of the learner and its sizes."""

    family: Family = Field(description="learns by Bayes' rule, or by gradients")
    decoder: Decoder = Field(description="of channels; all but known: learned")
    rbf: RbfGrid
    bayes_filter: FilterNoise
    seq_vae: SeqVaeNetwork

    @property
    def uses_rbf(self) -> bool:
        return self.family == "bayes_filter" or self.seq_vae.dynamics == "rbf"

    def check(self) -> None:
        if self.family == "bayes_filter" and self.decoder in ("loglinear", "mlp"):
            raise ValueError(
                f"decoder: {self.decoder} is learned by seq_vae alone; set known or linear"
            )


class Acquisition(Section):
    """Holds the weights of the values that the active arm maximises."""

    weights: dict[str, NonNegative] = Field(description="value -> weight")
    margin: NonNegative = Field(description="how far plans may leave the region for nothing")

    def __hash__(self) -> int:
        return hash((self.margin, *sorted(self.weights.items())))  # a dictionary has none

    @property
    def needs_joint_covariance(self) -> bool:
        """Returns whether a value of positive weight needs the covariance of all weights."""
        needs = {VALUE_NEEDS[name] for name, weight in self.weights.items() if weight}
        return "joint covariance" in needs

    def check(self) -> None:
        among("weights", self.weights, VALUES)
        if not any(self.weights.values()):
            raise ValueError("all weights are 0: nothing is looked for; give one value a weight")


class Planner(Section):
    """Holds the settings of the search for a sequence of actions."""

    candidates: int = Field(ge=2, le=65536, description="sequences per iteration")
    iterations: int = Field(ge=1, le=1000)
    horizon: int = Field(ge=1, le=256, description="decisions of a sequence")
    elites: int = Field(ge=1, description="sequences that the next iteration is drawn around")
    keep: int = Field(ge=0, description="of them, how many are scored again in the next iteration")
    hold: int = Field(ge=1, le=1000, description="transitions that a decision lasts")
    replan_every: int = Field(ge=1, le=10_000, description="transitions; a multiple of hold")
    alpha: float = Field(ge=0, lt=1, description="share of mean and spread that an iteration keeps")
    init_std: Positive = Field(description="of actions, in units of action_bound")
    colour: float = Field(ge=0, le=4, description="of the noise: 0 white, 1 pink, 2 red")

    def check(self) -> None:
        at_most(self, "keep", "elites")
        below(self, "elites", "candidates")
        multiple(self, "replan_every", "hold")
        at_most(self, "replan_every", "horizon * hold")
        if self.keep + 1 == self.candidates:
            raise ValueError(
                f"keep {self.keep} and the mean are all of candidates {self.candidates}:"
                " none is drawn; lower keep"
            )


class Policies(Section):
    """Holds the settings of arms that do not plan."""

    step_hold: int = Field(ge=1, le=10**9, description="transitions of one draw of arm `step`")
    prbs_hold: tuple[Hold, Hold] = Field(
        description="least and most transitions of signs of `prbs`"
    )

    def hold(self, arm: str) -> tuple[int, int]:
        """Returns the least and most transitions of an action of an arm."""
        return self.prbs_hold if arm == "prbs" else (self.step_hold, self.step_hold)

    def check(self) -> None:
        low, high = self.prbs_hold
        if low > high:
            raise ValueError(f"prbs_hold [{low}, {high}] is no range; put the lesser first")


class SeqVaeTraining(Section):
    """Holds the settings of gradient steps on windows of the replay."""

    samples: int = Field(ge=1, le=1024, description="of the states of a window")
    horizons: int = Field(ge=1, le=256, description="steps ahead that the dynamics must explain")
    decay: float = Field(gt=0, le=1, description="weight of a step ahead, relative to one less")
    window: int = Field(ge=2, le=10_000, description="transitions that are scored")
    burn_in: int = Field(ge=0, le=10_000, description="before them, to set the encoder's state")
    batch_size: int = Field(ge=1, le=65536, description="windows per gradient step")
    updates: int = Field(ge=1, le=1000, description="gradient steps per transition")
    optimizer: Literal["adam", "sgd"]
    learning_rate: float = Field(gt=0, le=1)
    weight_decay: float = Field(ge=0, le=1)
    max_grad_norm: Positive | None = Field(description="null: gradients are not clipped")
    beta: NonNegative = Field(description="weight of the divergence terms")
    anneal_kind: Literal["none", "linear"] = Field(description="how beta is reached")
    anneal: int = Field(ge=1, le=10**9, description="updates from 0 to beta")
    mask: float = Field(ge=0, lt=1, description="share of states predicted in place of encoded")
    min_windows: int = Field(ge=1, le=10**9, description="windows before the first gradient step")

    max_misalignment: NonNegative = Field(
        description="with a learned decoder: relative error of the effect of actions on encoded"
        " states up to which actions are planned; coordinates are set anew beyond half of it"
    )
    alignment_error: NonNegative = Field(
        description="greatest standard error of that effect by which they are set; 0: never"
    )

    @property
    def length(self) -> int:
        """Returns the transitions of a window with its burn-in."""
        return self.burn_in + self.window

    def check(self) -> None:
        below(self, "horizons", "window")


class ArmsTrain(Section):
    """Holds the arms, which learn from the same start by their own actions, and how they act."""

    arms: tuple[Arm, ...] = Field(min_length=1, description="ways to act: active plans actions")
    transitions: int = Field(ge=2, le=10**9, description="of each learner, warm-up included")
    record_every: int = Field(ge=1, description="transitions per record")
    checkpoints: int = Field(ge=2, le=1000, description="kept fields, even in log(transitions)")
    planner: Planner
    policies: Policies

    @property
    def steps(self) -> int:
        """Returns `Progress.step` of the last yield."""
        return self.transitions

    def check(self) -> None:
        distinct("arms", self.arms)
        at_most(self, "checkpoints", "transitions")


class Train(ArmsTrain):
    """Adds what actions are planned for, and the settings of seq_vae."""

    acquisition: Acquisition
    seq_vae: SeqVaeTraining


class Evaluate(Section):
    """Holds the settings of the evaluation."""

    elbo_samples: int = Field(ge=1, le=4096, description="of held-out states, for seq_vae's bound")


class ActiveDynamicsConfig(ModelSection):
    """Holds everything an active_dynamics run depends on."""

    seeds: int = Field(ge=1, le=1024, description="replicates of each arm")
    env: Env
    collect: Collect
    network: Network
    train: Train
    evaluate: Evaluate

    @property
    def learners(self) -> int:
        """Returns the number of learners: all replicates of each arm, arm by arm."""
        return len(self.train.arms) * self.seeds

    def check(self) -> None:
        if self.network.uses_rbf:
            self._check_features()
        self._check_decoder()
        self._check_lengths()
        if "active" in self.train.arms:
            self._check_acquisition()
        self._check_memory()

    def _check_features(self) -> None:
        d = self.env.d
        side = self.network.rbf.side
        if d > 3 or side**d > MAX_FEATURES:
            raise ValueError(
                f"network.rbf.side {side} makes {side**d:,} centres in {d} dimensions;"
                f" at most {MAX_FEATURES}, in at most 3 dimensions; lower it"
            )
        if self.network.family == "bayes_filter" and d + d * side**d > MAX_STATE:
            raise ValueError(
                f"network.rbf.side {side} makes a filter of {d + d * side**d:,} numbers;"
                f" at most {MAX_STATE:,}; lower it"
            )

    def _check_decoder(self) -> None:
        observation = self.env.observation
        decoder = self.network.decoder
        if observation.noise == "poisson" and decoder in ("linear", "mlp"):
            raise ValueError(
                f"network.decoder: {decoder} gives no rates for noise: poisson;"
                " set known or loglinear"
            )
        if self.network.family != "bayes_filter" or decoder != "linear":
            return
        import numpy  # whoever reads another config does not wait for it

        d = self.env.d
        control = numpy.eye(d) if self.env.control is None else self.env.control
        warmup = self.collect.warmup
        for fails, problem in (
            (
                observation.kind == "loglinear",
                "of bayes_filter cannot learn env.observation.kind: loglinear; set decoder: known",
            ),
            (
                observation.channels == d,
                f"tells noise by what is left of {d} channels; raise env.observation.channels",
            ),
            (
                numpy.linalg.matrix_rank(control) < d,
                f"needs actions that push each dimension; give env.control rank {d}, or null",
            ),
            (
                warmup < LEARNED_WARMUP,
                f"is learned from collect.warmup {warmup}; set at least {LEARNED_WARMUP}",
            ),
        ):
            if fails:
                raise ValueError(f"network.decoder: linear {problem}")

    def _check_lengths(self) -> None:
        window = "train.seq_vae.window + train.seq_vae.burn_in"
        unplanned = "lower it, or episodes end before anything is planned in them"
        unlearned = "lower one, or nothing is learned"
        learns_windows = self.network.family == "seq_vae"
        below(self, "collect.warmup", "train.transitions")
        if self.env.episode_transitions is not None:
            at_most(self, "train.planner.replan_every", "env.episode_transitions", unplanned)
            if learns_windows:
                at_most(self, window, "env.episode_transitions", unlearned)
        if learns_windows:
            shortest = f"{window} + train.seq_vae.min_windows"
            at_most(self, shortest, "train.transitions", unlearned)

    def _check_acquisition(self) -> None:
        network = self.network
        weighted = [name for name, weight in self.train.acquisition.weights.items() if weight]
        ensemble = network.family == "seq_vae" and network.seq_vae.dynamics == "ensemble"
        if "disagreement" in weighted and not (ensemble and network.seq_vae.members > 1):
            raise ValueError(
                "train.acquisition.weights.disagreement needs network.family: seq_vae with"
                " dynamics: ensemble and several members; set these, or weigh another value"
            )
        undefined = [name for name in weighted if VALUE_NEEDS[name].endswith("covariance")]
        if ensemble and undefined:
            raise ValueError(
                f"train.acquisition.weights.{undefined[0]} needs a posterior,"
                " which an ensemble does not have; weigh disagreement"
            )

    def _check_memory(self) -> None:
        d = self.env.d
        plan = self.train.planner
        channels = self.env.observation.channels
        features = d * self.network.rbf.side**d if self.network.uses_rbf else 64
        for what, numbers in {
            "learners * train.transitions * env.observation.channels": (
                self.learners * self.train.transitions * channels
            ),
            "learners * (network.rbf.side ** d * d) ** 2": 2 * self.learners * features**2,
            "seeds * train.planner.candidates * horizon": (
                self.seeds * plan.candidates * plan.horizon * features
            ),
            "collect.held_out_rollouts of env.observation.channels": (
                self.collect.held_out_rollouts * 101 * channels
            ),
        }.items():
            fits(what, 8 * numbers, MAX_BYTES)


# A system of the user.

Columns = Annotated[tuple[str, ...], Field(max_length=64)]
RECORDED = "recorded"
# The array of actions of a recording that names no columns.
ACTIONS = ("actions",)


class UserEnv(RecordableEnv):
    """Sets a Gymnasium environment, or recorded runs (in `path` `*` matches several files), whose
    observations show the whole state.
    """

    OF_ENVS: ClassVar = {"action_bound": None}
    OF_FILES: ClassVar = {"actions": (), "states": None, "angles": (), "time": None, "run": None}

    actions: Columns = Field(description="columns of actions; []: the array `actions`")
    states: Columns | None = Field(
        description="columns of measured states; null: `observations`, or all others"
    )
    angles: Columns = Field(description="of the states those that count as their cosine and sine")
    time: str | None = Field(description="column of time; null: none")
    run: str | None = Field(
        description="column that numbers runs; null: `episode`, or each file is one"
    )
    dt: float | None = Field(
        gt=0, le=1e4, description="time of a transition; null: that of the environment or of `time`"
    )
    control: Matrix | None = Field(
        description="B of dx/dt = f(x) + B a by rows, one per state; null: learned, B(x)"
    )
    action_bound: Positive | None = Field(
        description="of each number of an action in an environment; null: that of its action space"
    )
    true_field: str | None = Field(
        pattern=r"^[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*$",
        description="module:function, states [n, d] -> velocities [n, d] without actions, to "
        "compare with; null: unknown",
    )

    @property
    def makers(self) -> list[str]:
        return [*super().makers, self.true_field or ""]

    def check(self) -> None:
        super().check()
        distinct("angles", self.angles)
        ends = (self.run or EPISODE, *FLAGS)
        named = (self.time, *ends, *(self.actions or ACTIONS), *(self.states or ()))
        distinct("columns of actions, states, time and run", [*filter(None, named)])
        if self.dt is not None and self.time is not None:
            raise ValueError(
                f"dt {self.dt:g} and time {self.time!r} both tell the time of a transition; set "
                "one to null"
            )


class UserEnvCollect(Section):
    """Sets how much is recorded before learning, and held out."""

    warmup: int = Field(ge=50, le=10**6, description="transitions that all arms begin with")
    held_out_transitions: int = Field(ge=100, le=10**6, description="of an environment")
    held_out_fraction: float = Field(
        gt=0, lt=1, description="last part of a recording, which is never learned from"
    )


class UserEnvNetwork(Section):
    """Sets the random features of the regression."""

    features: int = Field(ge=8, le=1024, description="cosines of the states")


class UserEnvTrain(ArmsTrain):
    """Sets arms, their transitions and how the active one plans; features are chosen anew at
    checkpoints.
    """

    def check(self) -> None:
        super().check()
        multiple(self, "record_every", "planner.replan_every")
        multiple(self, "transitions", "record_every")


class UserEnvEvaluate(Section):
    """Sets the evaluation."""

    horizon: int = Field(ge=1, le=1000, description="transitions that are predicted at once")


class ActiveDynamicsUserEnvConfig(ActiveDynamicsConfig):
    """Holds everything a run in a user's system depends on."""

    brings_env = True

    env: UserEnv  # type: ignore[assignment]
    collect: UserEnvCollect  # type: ignore[assignment]
    network: UserEnvNetwork  # type: ignore[assignment]
    train: UserEnvTrain  # type: ignore[assignment]
    evaluate: UserEnvEvaluate  # type: ignore[assignment]

    @property
    def arms(self) -> tuple[str, ...]:
        """Returns the arms; a recording is the only one."""
        return (RECORDED,) if self.env.is_recorded else self.train.arms

    @property
    def learners(self) -> int:
        return len(self.arms) * self.seeds

    @property
    def shown_arm(self) -> str:
        """Returns the arm that is judged and served."""
        return "active" if "active" in self.arms else self.arms[0]

    def check(self) -> None:
        below(self, "collect.warmup", "train.transitions")
        multiple(self, "collect.warmup", "train.record_every")
