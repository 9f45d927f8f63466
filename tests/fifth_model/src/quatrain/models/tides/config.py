"""section `tides` of params.yaml -> a frozen config."""

from pydantic import Field

from quatrain.section import Section


class Env(Section):
    """Configures the readings of the water level."""

    noise: float = Field(gt=0, le=10, description="standard deviation of a reading, in metres")


class Collect(Section):
    """Configures the number of readings, at random times of the day."""

    readings: int = Field(ge=1, le=10**6)
    held_out_readings: int = Field(ge=2, le=10**6, description="further ones, to evaluate on")


class Network(Section):
    """Configures the learned sum: a constant, and a cosine and a sine per harmonic."""

    harmonics: int = Field(ge=1, le=100, description="the fastest wave, in waves a day")


class Train(Section):
    """Configures gradient descent on batches of readings."""

    steps: int = Field(ge=1, le=10**9, description="gradient steps")
    batch_size: int = Field(ge=1, le=10**6)
    learning_rate: float = Field(gt=0, le=10)
    record_every: int = Field(ge=1, description="steps per record")


class Evaluate(Section):
    """Configures the plot of the learned curve."""

    points: int = Field(ge=2, le=10**5, description="times of the day at which the curve is drawn")


class TidesConfig(Section):
    """Holds everything that a run of tides depends on."""

    seeds: int = Field(ge=1, le=1024, description="learners, on the same readings")
    env: Env
    collect: Collect
    network: Network
    train: Train
    evaluate: Evaluate
