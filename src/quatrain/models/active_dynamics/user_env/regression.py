"""transitions of measured states -> a belief about dy/dt = f(y) + B(y) a: Bayesian regression

States are scaled, z = (y - c) scale, and so are velocities, v = dz/dt / speed. The rows of
features are

    ψ(z, a) = [φ(z), a₁ φ(z), ...]    φ_c(z) = √(2/C) cos(ω_c z + b_c)

random Fourier features of a Gaussian kernel ('Random Features for Large-Scale Kernel Machines',
2007), with even draws of ω. Where the effect B of actions is known it is subtracted, and ψ = φ.
With the noise s_i² of each velocity and weights W_i ~ N(0, τ s_i² I) the belief after rows Ψ is

    A = ΨᵀΨ + I/τ    W = A⁻¹ Ψᵀ v    cov W_i = s_i² A⁻¹    v_i ~ N(ψ W_i, s_i² (1 + ψ A⁻¹ ψᵀ))

The length of the kernel and τ are those of the greatest evidence, and s_i² is what transitions show
that the weights were not learned from.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.quasirandom import SobolEngine

from quatrain.errors import DataError
from quatrain.models.active_dynamics.acquisition import WORST
from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig as Config
from quatrain.models.active_dynamics.losses import LOG_2PI

# Lengths of the kernel in standard deviations of the states, and τ.
LENGTHS = (0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0)
PRIORS = (1e1, 1e2, 1e3, 1e4)
# Parts of consecutive transitions; what is learned from the others predicts each.
FOLDS = 20
# Least standard deviation of the noise of a scaled velocity: observations have 32 bits.
LEAST_NOISE = 1e-6
# A path's largest distance from the warm-up, in standard deviations of a state, that costs nothing,
# and the nats of one more.
REGION, OUTSIDE = 3.0, 10.0
# Least standard deviation of what changes.
LEAST_DEVIATION = 1e-6


class Transitions(NamedTuple):
    """Holds observed transitions in the user's units, in double precision."""

    y: Float64[Tensor, "*batch obs"]
    actions: Float64[Tensor, "*batch action"]
    next_y: Float64[Tensor, "*batch obs"]


class Model(NamedTuple):
    """Holds all that predictions need.

    center, scale: c and 1 / standard deviation. bound: of actions, which features have in its unit.
    control: known effect of actions on v; 0 where it is learned. covariance: A⁻¹. noise: s_i²;
    noise_error: its standard error, relative to it.
    """

    center: Float64[Tensor, " obs"]
    scale: Float64[Tensor, " obs"]
    speed: Float64[Tensor, " d"]
    bound: Float64[Tensor, " action"]
    control: Float64[Tensor, "d action"]
    frequency: Float64[Tensor, "feature d"]
    phase: Float64[Tensor, " feature"]
    weight: Float64[Tensor, "column d"]
    covariance: Float64[Tensor, "column column"]
    noise: Float64[Tensor, " d"]
    noise_error: Float64[Tensor, ""]

    def state(self, y: Float64[Tensor, "*batch obs"]) -> Float64[Tensor, "*batch d"]:
        return (y - self.center) * self.scale

    def scaled_velocity(self, batch: Transitions, dt: float) -> Float64[Tensor, "*batch d"]:
        return (batch.next_y - batch.y) * self.scale / (dt * self.speed)

    def features(
        self, z: Float64[Tensor, "*batch d"], actions: Float64[Tensor, "*batch action"]
    ) -> Float64[Tensor, "*batch column"]:
        """Computes ψ."""
        size = len(self.phase)
        waves = (z @ self.frequency.mT + self.phase).cos() * (2 / size) ** 0.5
        if len(self.weight) == size:
            return waves
        pushed = [waves * a[..., None] for a in (actions / self.bound).unbind(-1)]
        return torch.cat([waves, *pushed], -1)

    def mean(
        self, features: Float64[Tensor, "*batch column"], actions: Float64[Tensor, "*batch action"]
    ) -> Float64[Tensor, "*batch d"]:
        """Computes the expected v."""
        return features @ self.weight + actions @ self.control.mT

    def variance(self, features: Float64[Tensor, "*batch column"]) -> Float64[Tensor, "*batch d"]:
        """Computes the variance of f + B a in units of v, without noise."""
        return ((features @ self.covariance) * features).sum(-1)[..., None] * self.noise


def velocities(
    model: Model, y: Float64[Tensor, "*batch obs"], actions: Float64[Tensor, "*batch action"]
) -> tuple[Float64[Tensor, "*batch obs"], Float64[Tensor, "*batch obs"]]:
    """Computes dy/dt and its standard deviation, in the user's units."""
    features, unit = model.features(model.state(y), actions), model.speed / model.scale
    deviation = model.variance(features).clamp(min=0).sqrt()
    return model.mean(features, actions) * unit, deviation * unit


def empty_model(d: int, actions: int, features: int, columns: int) -> Model:
    """Returns a model of zeros."""
    scales = ((d,), (d,), (d,), (actions,), (d, actions))
    learned = ((features, d), (features,), (columns, d), (columns, columns), (d,), ())
    return Model(*(torch.zeros(shape, dtype=torch.float64) for shape in scales + learned))


class Learner(NamedTuple):
    """Holds a model, A and Ψᵀv."""

    model: Model
    precision: Float64[Tensor, "column column"]
    moment: Float64[Tensor, "column d"]


def begin(config: Config, batch: Transitions, dt: float, seed: int) -> Learner:
    """Returns what the warm-up teaches, which sets the scales of states and velocities.

    seed: of the features.

    Raises:
        DataError: something never changes, or `control` does not fit the data.
    """
    name, effect = config.env.name, config.env.control
    for kind, values in (("observation", batch.y), ("action", batch.actions)):
        deviation = values.std(0)
        if deviation.min() < LEAST_DEVIATION:
            raise DataError(
                f"{name}: {kind} {int(deviation.argmin())} never changes; vary it, or leave it out"
            )
    d, size = batch.y.shape[-1], batch.actions.shape[-1]
    features = config.network.features
    columns = features * (1 + size if effect is None else 1)
    model = empty_model(d, size, features, columns)._replace(
        center=batch.y.mean(0),
        scale=1 / batch.y.std(0),
        speed=torch.ones(d, dtype=torch.float64),
        bound=batch.actions.abs().amax(0),
    )
    speed = model.scaled_velocity(batch, dt).square().mean(0).sqrt().clamp(min=LEAST_DEVIATION)
    model = model._replace(speed=speed)
    if effect is not None:
        control = torch.tensor(effect, dtype=torch.float64)
        if control.shape != (d, size):
            raise DataError(
                f"{name} has {d} states and {size} actions; active_dynamics.env.control has "
                f"{len(control)} rows of {control.shape[1]}: give B of dx/dt = f(x) + B a, or null "
                "to learn it"
            )
        model = model._replace(control=(model.scale / speed)[:, None] * control)
    return refit(Learner(model, model.covariance, model.weight), batch, dt, seed)


def draw_features(
    d: int, count: int, seed: int
) -> tuple[Float64[Tensor, "feature d"], Float64[Tensor, " feature"]]:
    """Draws ω for a kernel of length 1, and b, evenly."""
    with torch.device("cpu"):
        points = SobolEngine(d + 1).fast_forward(count * (1 + seed)).draw(count).double()
    points = points.to(torch.get_default_device())
    return torch.special.ndtri(points[:, :d]), points[:, d] * (2 * torch.pi)


def refit(
    learner: Learner, batch: Transitions, dt: float, seed: int, unplanned: int | None = None
) -> Learner:
    """Returns a learner whose length, τ and noise are those that all transitions show.

    unplanned: how many, the first ones, tell the noise, where later actions were chosen to learn
    most and lead elsewhere; None: all.
    """
    d, count = len(learner.model.speed), len(learner.model.phase)
    unit_frequency, phase = draw_features(d, count, seed)
    v = learner.model.scaled_velocity(batch, dt) - batch.actions @ learner.model.control.mT
    z = learner.model.state(batch.y)
    greatest = -torch.inf
    for length in LENGTHS:
        model = learner.model._replace(frequency=unit_frequency / length, phase=phase)
        psi = model.features(z, batch.actions)
        gram, moment = psi.mT @ psi, psi.mT @ v
        for prior in PRIORS:
            precision = gram + torch.eye(len(gram), dtype=gram.dtype) / prior
            evidence = _log_evidence(precision, moment, v, prior)
            if evidence > greatest:
                fitted, features, greatest = Learner(model, precision, moment), psi, evidence
    squares = _squares(fitted, features[:unplanned], v[:unplanned])
    noise = squares.mean(0).clamp(min=LEAST_NOISE**2)
    parts = torch.stack([part.mean() for part in (squares / noise).tensor_split(FOLDS)])
    model = fitted.model._replace(noise=noise, noise_error=parts.std() / FOLDS**0.5)
    return _solved(fitted._replace(model=model))


def _log_evidence(
    precision: Float64[Tensor, "column column"],
    moment: Float64[Tensor, "column d"],
    v: Float64[Tensor, "time d"],
    prior: float,
) -> float:
    """Computes ln p(v) up to a constant, with a flat prior of ln s_i."""
    root = torch.linalg.cholesky(precision)
    count, d = v.shape
    explained = torch.linalg.solve_triangular(root, moment, upper=False).square().sum(0)
    rest = (v.square().sum(0) - explained).clamp(min=count * LEAST_NOISE**2)
    volume = root.diagonal().log().sum() + len(root) / 2 * torch.tensor(prior).log()
    return float(-count / 2 * rest.log().sum() - d * volume)


def _squares(
    learner: Learner, features: Float64[Tensor, "time column"], v: Float64[Tensor, "time d"]
) -> Float64[Tensor, "time d"]:
    """Computes estimates of s_i² from what is left of each part when the others predict it."""
    squares = []
    for rows, targets in zip(features.tensor_split(FOLDS), v.tensor_split(FOLDS), strict=True):
        root = torch.linalg.cholesky(learner.precision - rows.mT @ rows)
        weight = torch.cholesky_solve(learner.moment - rows.mT @ targets, root)
        spread = torch.linalg.solve_triangular(root, rows.mT, upper=False).square().sum(0)
        squares.append((targets - rows @ weight).square() / (1 + spread[:, None]))
    return torch.cat(squares)


def _solved(learner: Learner) -> Learner:
    root = torch.linalg.cholesky(learner.precision)
    weight, covariance = torch.cholesky_solve(learner.moment, root), torch.cholesky_inverse(root)
    return learner._replace(model=learner.model._replace(weight=weight, covariance=covariance))


def observe(learner: Learner, batch: Transitions, dt: float) -> Learner:
    """Returns the learner after some more transitions; scales, length, τ and noise stay."""
    model, precision, moment = learner
    features = model.features(model.state(batch.y), batch.actions)
    v = model.scaled_velocity(batch, dt) - batch.actions @ model.control.mT
    return _solved(Learner(model, precision + features.mT @ features, moment + features.mT @ v))


def surprise(
    model: Model, batch: Transitions, dt: float
) -> tuple[Float64[Tensor, "*batch"], Float64[Tensor, "*batch d"]]:
    """Computes how far transitions are from their predictions: in nats per dimension of v, and in
    standard deviations, N(0, I) if the model is right.
    """
    features = model.features(model.state(batch.y), batch.actions)
    variance = model.variance(features) + model.noise
    error = model.scaled_velocity(batch, dt) - model.mean(features, batch.actions)
    standardized = error / variance.sqrt()
    nll = (standardized.square() + variance.log() + LOG_2PI).mean(-1) / 2
    return nll, standardized


def information(
    model: Model,
    y: Float64[Tensor, " obs"],
    actions: Float[Tensor, "1 n decision action"],
    dt: float,
    hold: int,
) -> Float[Tensor, "1 n"]:
    """Computes ½ ln|I + Ψ A⁻¹ Ψᵀ| of the decisions along paths of the mean: the nats that their
    transitions tell of the weights of one velocity, less the cost of leaving the region.

    actions: in units of their bound, each held for some transitions.
    """
    paths = actions[0].double() * model.bound
    z = model.state(y).expand(len(paths), -1)
    rows, farthest = [], z.new_zeros(len(z))
    for action in paths.unbind(1):
        for _ in range(hold):
            features = model.features(z, action)
            rows.append(features)
            z = z + dt * model.speed * model.mean(features, action)
            farthest = torch.maximum(farthest, z.abs().amax(1))
    design = torch.stack(rows[::hold], 1)
    gained = design @ model.covariance @ design.mT
    identity = torch.eye(gained.shape[-1], dtype=gained.dtype)
    nats = torch.linalg.slogdet(identity + gained).logabsdet / 2
    score = nats - OUTSIDE * (farthest - REGION).clamp(min=0)
    return score[None].float().nan_to_num(WORST, WORST, WORST)
