"""belief, action, next observation -> next belief about state and weights, and its innovation.

An extended Kalman filter of s = [x; vec W] (weight (i, c) of f_i = Σ_c W_ic φ_c at d + i·C + c) in
information form: channels enter only as d x d matrices, so that their number costs nothing once
these are computed.

With nonlinear channels (h = exp) the mean moves to the mode of
-ln p(y|x) + ½ (x - x_p)ᵀ P_xx⁻¹ (x - x_p) by Gauss-Newton steps with a line search, and the
covariance is that of h linearised there.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from quatrain.envs.vector_field.world import SMALLEST_RATE, Emission
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.network import Rbf

# Variance of U(-1, 1), the distribution of each dimension of a first state.
START_VARIANCE = 1 / 3
# Distance of the states of a central difference: a field may be in single precision.
DIFFERENCE = 1e-3
# Eigenvalues below this share of the largest count as 0.
RELATIVE_ZERO = 1e-14
# Gauss-Newton steps towards the mode of nonlinear channels.
ITERATIONS = 8
# Lengths that the line search tries, in units of the full Gauss-Newton step.
STEP_LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.03125, 0.0)
# Lower bound of counts before the logarithm.
LEAST_COUNT = 0.5


class LearnedChannels(NamedTuple):
    """C, b and R of y = C x + b + noise for each learner; an observation model, as `Emission`."""

    weight: Float[Tensor, "learner obs d"]
    bias: Float[Tensor, "learner obs"]
    noise_variance: Float[Tensor, "learner obs"]

    @property
    def kind(self) -> Literal["linear"]:
        return "linear"

    def mean(self, x: Float[Tensor, "learner d"]) -> Float[Tensor, "learner obs"]:
        return torch.einsum("rod,rd->ro", self.weight, x) + self.bias

    def variance(
        self,
        x: Float[Tensor, "learner d"],  # noqa: ARG002
    ) -> Float[Tensor, "learner obs"]:
        return self.noise_variance

    def precision(
        self,
        x: Float[Tensor, "learner d"],  # noqa: ARG002
    ) -> Float[Tensor, "learner d d"]:
        return (self.weight / self.noise_variance[..., None]).mT @ self.weight

    def information_vector(
        self, y: Float[Tensor, "learner obs"], x: Float[Tensor, "learner d"]
    ) -> Float[Tensor, "learner d"]:
        residual = (y - self.mean(x)) / self.noise_variance
        return torch.einsum("rod,ro->rd", self.weight, residual)

    def double(self) -> "LearnedChannels":
        return LearnedChannels(*(part.double() for part in self))


Channels = Emission | LearnedChannels


class Belief(NamedTuple):
    """Mean and covariance of [x; vec W]."""

    mean: Float64[Tensor, "learner n"]
    covariance: Float64[Tensor, "learner n n"]


def prior(rbf: Rbf, learners: int, weight_variance: float) -> Belief:
    """Returns a state from U(-1, 1) and independent weights around 0."""
    state_variance = torch.full((rbf.d,), START_VARIANCE)
    weight_variances = torch.full((rbf.d * rbf.size,), weight_variance)
    variance = torch.cat([state_variance, weight_variances]).double()
    mean = torch.zeros(learners, len(variance), dtype=torch.float64)
    return Belief(mean, torch.diag(variance).expand(learners, -1, -1).clone())


def state_prior(d: int, learners: int) -> Belief:
    variance = START_VARIANCE * torch.eye(d, dtype=torch.float64)
    mean = torch.zeros(learners, d, dtype=torch.float64)
    return Belief(mean, variance.repeat(learners, 1, 1))


def weights(d: int, belief: Belief) -> Float64[Tensor, "learner d feature"]:
    """Returns W as a view."""
    return belief.mean[:, d:].unflatten(1, (d, -1))


def weight_blocks(d: int, belief: Belief) -> Float64[Tensor, "learner d feature feature"]:
    """Returns P_ww,ii of each output i."""
    blocks = belief.covariance[:, d:, d:].unflatten(2, (d, -1)).unflatten(1, (d, -1))
    return torch.stack([blocks[:, i, :, i] for i in range(d)], 1)


class KalmanFilter(NamedTuple):
    """What is constant: features and channels, both in double precision."""

    rbf: Rbf
    emission: Channels
    dt: float
    process_noise: float

    @property
    def d(self) -> int:
        return self.rbf.d

    def predict(self, belief: Belief, u: Float64[Tensor, "learner d"]) -> None:
        """Moves the state by (W φ(x) + u) dt, in place.

        The covariance becomes F P Fᵀ + Q dt with F = [I + dt J, dt (I ⊗ φᵀ)].
        """
        d = self.d
        dt = self.dt
        mean, covariance = belief
        features, derivatives = self.rbf.with_derivatives(mean[:, :d])
        weight = weights(d, belief)
        identity = torch.eye(d, dtype=mean.dtype, device=mean.device)
        state_jacobian = identity + dt * (weight @ derivatives)

        # The rows of F P that belong to the state; blocks of P are multiplied by φ per output.
        by_output = covariance[:, d:].unflatten(1, (d, -1))
        from_weights = torch.matmul(features[:, None, None], by_output).squeeze(2)
        predicted = state_jacobian @ covariance[:, :d] + dt * from_weights
        cross = predicted[..., d:]
        by_features = torch.matmul(cross.unflatten(2, (d, -1)), features[:, None, :, None])
        state = predicted[..., :d] @ state_jacobian.mT + dt * by_features[..., 0]

        mean[:, :d] += dt * (matvec(weight, features) + u)
        covariance[:, :d, :d] = (state + state.mT) / 2 + self.process_noise * dt * identity
        covariance[:, :d, d:] = cross
        covariance[:, d:, :d] = cross.mT

    def predict_state(
        self, belief: Belief, drift: Callable[[Tensor], Tensor], u: Float64[Tensor, "learner d"]
    ) -> None:
        """Moves a belief about states alone by (f(x) + u) dt, in place.

        f' is a central difference.
        """
        mean, covariance = belief
        identity = torch.eye(self.d, dtype=mean.dtype, device=mean.device)
        offsets = DIFFERENCE * identity
        differences = [drift(mean + offset) - drift(mean - offset) for offset in offsets]
        state_jacobian = identity + self.dt * (torch.stack(differences, 2) / (2 * DIFFERENCE))
        mean += self.dt * (drift(mean) + u)
        noise = self.process_noise * self.dt * offsets / DIFFERENCE
        covariance.copy_(state_jacobian @ covariance @ state_jacobian.mT + noise)

    def correct(
        self, belief: Belief, y: Float64[Tensor, "learner obs"]
    ) -> Float64[Tensor, " learner"]:
        """Conditions the belief on an observation, in place.

        Returns: -log N(y - h(x); 0, H P_xx Hᵀ + R) per channel, of the belief before.
        """
        emission = self.emission
        x = belief.mean[:, : self.d].clone()
        state_covariance = belief.covariance[:, : self.d, : self.d]
        nll = losses.innovation_nll(emission, x, state_covariance, y)
        if emission.kind == "loglinear":
            _update_nonlinear(emission, belief, y)
        else:
            precision = emission.precision(x).expand_as(state_covariance)
            _update_linear(belief, precision, emission.information_vector(y, x))
        return nll

    def restart(
        self, belief: Belief, ended: Bool[Tensor, " learner"], y: Float64[Tensor, "learner obs"]
    ) -> None:
        """Resets the state where an episode ended, in place, and conditions it on y.

        y is the first observation of the next episode. The belief about the weights is kept.
        """
        if ended.is_cpu and not ended.any():  # on a GPU this question would wait for the device
            return
        d = self.d
        identity = torch.eye(d, dtype=y.dtype, device=y.device)
        restarted = Belief(*(part.clone() for part in belief))
        restarted.mean[:, :d] = 0
        restarted.covariance[:, :d] = 0
        restarted.covariance[..., :d] = 0
        restarted.covariance[:, :d, :d] = START_VARIANCE * identity
        self.correct(restarted, y)
        for current, new in zip(belief, restarted, strict=True):
            where = ended.view(-1, *[1] * (current.ndim - 1))
            current.copy_(torch.where(where, new, current))

    def standardized_innovation(
        self, belief: Belief, y: Float64[Tensor, "learner obs"]
    ) -> Float64[Tensor, "learner d"]:
        """Computes (Λ + Λ P_xx Λ)^-½ η of η = Hᵀ R⁻¹ (y - h(x_p)): N(0, I) if the filter is right.

        Only what channels say of the state counts, not their noise beside it. Directions that no
        channel shows are 0.
        """
        d = self.d
        x = belief.mean[:, :d]
        covariance = belief.covariance[:, :d, :d]
        precision = self.emission.precision(x).expand_as(covariance)
        values, vectors = eigh_psd(precision + precision @ covariance @ precision)
        rotated = matvec(vectors.mT, self.emission.information_vector(y, x))
        return matvec(vectors, inverse_roots(values) * rotated)


def _update_linear(
    belief: Belief,
    precision: Float64[Tensor, "learner d d"],
    information_vector: Float64[Tensor, "learner d"],
) -> None:
    """Conditions the belief on an observation, in place.

    precision: Λ. information_vector: η = Hᵀ R⁻¹ (y - h(x_p)).
    """
    d = precision.shape[-1]
    mean, covariance = belief
    columns = covariance[..., :d]
    identity = torch.eye(d, dtype=mean.dtype, device=mean.device)
    damped = identity + precision @ covariance[:, :d, :d]
    # M = (I + ΛP)⁻¹ Λ = N Nᵀ; it is singular with fewer channels than dimensions.
    values, vectors = eigh_psd(torch.linalg.solve(damped, precision))
    root = columns @ (vectors * values.sqrt()[:, None])
    mean += matvec(columns, torch.linalg.solve(damped, information_vector))
    covariance.baddbmm_(root, root.mT, alpha=-1)


def _update_nonlinear(
    emission: Emission, belief: Belief, y: Float64[Tensor, "learner obs"]
) -> None:
    """Conditions the belief on an observation, in place.

    The coordinates are b of s = s_p + G b, whose prior is N(0, I). No covariance of the state is
    inverted or subtracted. G = P_:x U v^-½ for P_xx = U diag(v) Uᵀ, and G_x G_xᵀ = P_xx for the
    rows G_x of the state.
    """
    d = emission.weight.shape[1]
    mean, covariance = belief
    values, vectors = torch.linalg.eigh(covariance[:, :d, :d])
    basis = covariance[..., :d] @ (vectors * inverse_roots(values)[:, None])
    state_basis = basis[:, :d].clone()
    x = mean[:, :d].clone()

    mode = _find_mode(emission, x, state_basis, y)
    precision = emission.precision(x + matvec(state_basis, mode))
    gains, directions = eigh_psd(state_basis.mT @ precision @ state_basis)
    mean += matvec(basis, mode)

    rotated = basis @ directions
    removed = rotated * (gains / (1 + gains)).sqrt()[:, None]
    covariance.baddbmm_(removed, removed.mT, alpha=-1)
    # The blocks of the state are computed without cancellation.
    remaining = (rotated / (1 + gains)[:, None]) @ rotated[:, :d].mT
    covariance[..., :d] = remaining
    covariance[:, :d] = remaining.mT


def _find_mode(
    emission: Emission,
    x: Float64[Tensor, "learner d"],
    basis: Float64[Tensor, "learner d d"],
    y: Float64[Tensor, "learner obs"],
) -> Float64[Tensor, "learner d"]:
    """Finds argmin_b of -ln p(y | x + G_x b) + ½|b|² by Gauss-Newton steps with a line search."""
    lengths = torch.tensor(STEP_LENGTHS, dtype=y.dtype, device=y.device)[:, None]
    precision, information_vector = _first_linearisation(emission, x, y)
    mode = torch.zeros_like(x)
    for _ in range(ITERATIONS):
        # The full step leads to (I + G_xᵀ Λ G_x)⁻¹ G_xᵀ η.
        gains, directions = eigh_psd(basis.mT @ precision @ basis)
        rotated = matvec(directions.mT, matvec(basis.mT, information_vector))
        target = matvec(directions, rotated / (1 + gains))
        candidates = torch.lerp(mode[:, None], target[:, None], lengths)
        misfit = _misfit(emission, x[:, None] + candidates @ basis.mT, y[:, None])
        cost = misfit + candidates.square().sum(2) / 2
        best = cost.nan_to_num(nan=torch.inf).argmin(1)
        mode = candidates.take_along_dim(best[:, None, None], 1)[:, 0]
        shift = matvec(basis, mode)
        precision = emission.precision(x + shift)
        information_vector = emission.information_vector(y, x + shift) + matvec(precision, shift)
    return mode


def _first_linearisation(
    emission: Emission, x: Float64[Tensor, "learner d"], y: Float64[Tensor, "learner obs"]
) -> tuple[Float64[Tensor, "learner d d"], Float64[Tensor, "learner d"]]:
    """Returns Λ and η if ln y is the observation, with the noise it has where h = y.

    The first step then starts near states that explain y; from far away steps could end at other
    modes.
    """
    if emission.noise == "poisson":
        positive = torch.maximum(y, torch.full_like(y, LEAST_COUNT))
        certainty = positive
    else:
        positive = torch.maximum(y, emission.noise_variance.sqrt())
        certainty = positive.square() / emission.noise_variance
    weighted = certainty * (positive.log() - emission.bias - x @ emission.weight.T)
    precision = (emission.weight.T * certainty[:, None]) @ emission.weight
    return precision, weighted @ emission.weight


def _misfit(
    emission: Emission, x: Float64[Tensor, "learner n d"], y: Float64[Tensor, "learner 1 obs"]
) -> Float64[Tensor, "learner n"]:
    """Computes -ln p(y | x) up to a constant."""
    mean = emission.mean(x)
    if emission.noise == "poisson":
        rate = mean.clamp(min=SMALLEST_RATE)
        return (rate - y * rate.log()).sum(2)
    return ((y - mean).square() / emission.noise_variance).sum(2) / 2


def matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    return torch.matmul(matrix, vector[..., None])[..., 0]


def eigh_psd(
    square: Float64[Tensor, "learner d d"],
) -> tuple[Float64[Tensor, "learner d"], Float64[Tensor, "learner d d"]]:
    """Returns λ and V of M = V diag(λ) Vᵀ; M is positive semidefinite up to rounding."""
    values, vectors = torch.linalg.eigh((square + square.mT) / 2)
    return values.clamp(min=0), vectors


def inverse_roots(values: Float64[Tensor, "learner d"]) -> Float64[Tensor, "learner d"]:
    """Computes λ^-½ of ascending eigenvalues; 0 where λ counts as 0."""
    positive = values > RELATIVE_ZERO * values[:, -1:]
    return torch.where(positive, values, torch.inf).rsqrt()
