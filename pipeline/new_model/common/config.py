"""section `sketch` of params.yaml -> a frozen config."""

from pydantic import Field

from quatrain.section import ModelSection, Section, multiple


class Env(Section):
    """Configures what is to be learned: sin(frequency x) cos(frequency y)."""

    frequency: float = Field(gt=0, le=20, description="radians per unit of x and y")


class Collect(Section):
    """Configures the number of samples."""

    samples: int = Field(ge=2, le=10**7, description="to train on, and as many to evaluate on")


class Network(Section):
    """Configures a network with one hidden layer."""

    hidden: int = Field(ge=1, le=4096, description="hidden units")


class Train(Section):
    """Configures Adam on random batches."""

    steps: int = Field(ge=1, le=10**9, description="gradient steps, a multiple of record_every")
    batch_size: int = Field(ge=1, le=10**6)
    learning_rate: float = Field(gt=0, le=1)
    record_every: int = Field(ge=1, description="steps per record")

    def check(self) -> None:
        multiple(self, "steps", "record_every")


class Evaluate(Section):
    """Configures the plot of learned values."""

    points: int = Field(ge=2, le=10**4, description="held-out points that are drawn")


class SketchConfig(ModelSection):
    """Holds everything that a run of sketch depends on."""

    seeds: int = Field(ge=1, le=1024, description="learners, on the same samples")
    env: Env
    collect: Collect
    network: Network
    train: Train
    evaluate: Evaluate
