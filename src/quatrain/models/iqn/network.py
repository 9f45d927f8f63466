"""observations, quantiles -> the value of each action at each quantile, and policies by them

'Implicit Quantile Networks for Distributional Reinforcement Learning' (ICML 2018), dueling heads:

    h = relu(W_h x)   c = relu(W_c cos(π i τ)), i = 1..E   z = relu(W_f (h ⊙ c))
    Z = v + a − mean_actions a

The modules take their random keys as arguments, for flax derives its own from the layers' names: a
renamed layer would then start from other weights.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Float32, Int, Int8, Key, Shaped

from quatrain.envs.host.convolutions import BRIGHTEST, Layer, layers_of
from quatrain.frameworks.jax import convolve, in_blocks, over_seeds
from quatrain.models.iqn.collect import LAYOUT
from quatrain.models.iqn.config import Acting, LearnerConfig, LinearEpsilon, Network
from quatrain.models.iqn.losses import greedy_action
from quatrain.replay.frames.ring import AnyArray

# {layer: {kernel, bias}} of one agent; a noisy layer also has kernel_sigma and bias_sigma.
Params = Any
LAYERS = ("hidden", "cosine", "feature", "advantage", "value")
NOISY = LAYERS[2:]
# Initial scale of the noise.
SIGMA = 0.017
# Layer -> key.
LayerKeys = Mapping[str, Key[Array, ""]]
# (key, agent, stack (env, inputs), states of all envs) -> actions of this agent in all envs.
Policy = Callable[[Array, Array, Array, Any], Array]


class NoisyDense(nn.Module):
    """Computes x W + b; with a noise key W and b are μ + σ ⊙ ε ('Noisy Networks', ICLR 2018).

    W and b start uniform in ±1/√inputs, or in ±√(3/inputs) with noise, which is standard normal.
    """

    features: int
    noisy: bool

    @nn.compact
    def __call__(self, inputs: Array, init_keys: LayerKeys, noise_keys: LayerKeys) -> Array:
        shape = (inputs.shape[-1], self.features)
        bound = (3 / shape[0]) ** 0.5 if self.noisy else shape[0] ** -0.5
        draw = partial(_uniform, init_key=init_keys.get(str(self.name)), bound=bound)
        kernel = self.param("kernel", partial(draw, part=0), shape)
        bias = self.param("bias", partial(draw, part=1), shape[1:])
        if self.noisy:
            initial = nn.initializers.constant(SIGMA, jnp.float32)
            kernel_sigma = self.param("kernel_sigma", initial, shape)
            bias_sigma = self.param("bias_sigma", initial, shape[1:])
            if self.name in noise_keys:
                kernel_key, bias_key = jax.random.split(noise_keys[str(self.name)])
                kernel = kernel + kernel_sigma * jax.random.normal(kernel_key, shape)
                bias = bias + bias_sigma * jax.random.normal(bias_key, shape[1:])
        return inputs @ kernel + bias


class Convolution(nn.Module):
    """Convolves images with filters that start uniform in ±1/√inputs, as those of NoisyDense."""

    layer: Layer

    @nn.compact
    def __call__(self, images: Array, init_keys: LayerKeys) -> Array:
        filters, side, stride, padding = self.layer
        shape = (side, side, images.shape[-1], filters)
        bound = math.prod(shape[:3]) ** -0.5
        draw = partial(_uniform, init_key=init_keys.get(str(self.name)), bound=bound)
        kernel = self.param("kernel", partial(draw, part=0), shape)
        bias = self.param("bias", partial(draw, part=1), shape[3:])
        return convolve(images, kernel, stride, padding) + bias


class QuantileNetwork(nn.Module):
    network: Network
    actions: int
    layout: tuple[int, ...]

    @nn.compact
    def __call__(
        self, stack: Array, taus: Array, init_keys: LayerKeys, noise_keys: LayerKeys
    ) -> Array:
        def dense(name: str, inputs: Array, features: int) -> Array:
            noisy = self.network.noisy != "none" and name in NOISY
            return NoisyDense(features, noisy, name=name)(inputs, init_keys, noise_keys)

        units = self.network.hidden
        hidden = nn.relu(dense("hidden", self._features(stack, init_keys), units))
        cosine = nn.relu(dense("cosine", embed(self.network.cosines, taus), units))
        feature = nn.relu(dense("feature", hidden[:, None] * cosine, units))
        advantage = dense("advantage", feature, self.actions)
        if not self.network.dueling:
            return advantage
        return combine_heads(dense("value", feature, 1), advantage)

    def _features(self, stack: Array, init_keys: LayerKeys) -> Array:
        """Returns a stack, with features of its images, whose frames are channels, in their
        place.
        """
        image = self.layout[:3]
        if not any(image):
            return stack.astype(jnp.float32)
        frames = stack.reshape(len(stack), self.network.frames, -1)
        pixels, others = jnp.split(frames, [math.prod(image)], -1)
        images = jnp.moveaxis(pixels.reshape(*pixels.shape[:2], *image), 1, 3)
        units = images.reshape(*images.shape[:3], -1).astype(jnp.float32) / BRIGHTEST
        for number, layer in enumerate(layers_of(image)):
            units = nn.relu(Convolution(layer, name=f"convolution{number}")(units, init_keys))
        parts = (units, others.astype(jnp.float32))
        return jnp.concatenate([part.reshape(len(stack), -1) for part in parts], 1)


def init(
    network: Network, key: Key[Array, ""], inputs: int, actions: int, layout: tuple[int, ...] = ()
) -> Params:
    """Draws fresh parameters of one agent, {layer: {kernel, bias}}, for stacks of this width."""
    layers = LAYERS if network.dueling else LAYERS[:-1]
    keys = dict(zip(layers, jax.random.split(key, len(layers)), strict=True))
    if any(layout[:3]):
        convolutions = range(len(layers_of(layout)))
        keys |= {f"convolution{each}": jax.random.fold_in(key, each) for each in convolutions}
    variables = QuantileNetwork(network, actions, layout).init(
        key,
        stack=jnp.zeros((1, inputs), jnp.int8),
        taus=jnp.zeros((1, 1)),
        init_keys=keys,
        noise_keys={},
    )
    # Without elements: its shape tells each program and file how to read a row.
    shape_only = {LAYOUT: jnp.zeros((0, *layout))} if layout else {}
    return variables["params"] | shape_only


def init_agents(
    network: Network,
    keys: Key[Array, " agent"],
    inputs: int,
    actions: int,
    layout: tuple[int, ...] = (),
) -> Params:
    """Draws fresh parameters of agents with these keys; leaves begin with axis agent. layout: as in
    `Sizes`.
    """
    return jax.vmap(lambda key: init(network, key, inputs, actions, layout))(keys)


def apply(
    network: Network,
    params: Params,
    stack: Shaped[Array, "batch inputs"],
    taus: Float[Array, "_ quantile"],
    noise_key: Key[Array, ""] | None = None,
) -> Float[Array, "batch quantile action"]:
    """Computes Z of each sample and quantile; `taus` with one row serve all samples.

    noise_key: draws the noise once for all samples and quantiles; None: no noise.
    """
    noise_keys: LayerKeys = {}
    if noise_key is not None and network.noisy != "none":
        noise_keys = dict(zip(NOISY, jax.random.split(noise_key, len(NOISY)), strict=True))
    sizes = count_actions(params), layout_of(params)
    return QuantileNetwork(network, *sizes).apply(  # type: ignore[return-value]
        {"params": params}, stack, taus, init_keys={}, noise_keys=noise_keys
    )


def count_actions(params: Params) -> int:
    """Returns the number of actions of which these parameters, of any axes before, give values."""
    return int(params["advantage"]["bias"].shape[-1])


def layout_of(params: Params) -> tuple[int, ...]:
    """Returns the layout of the rows that these parameters, of any axes before, read."""
    return params[LAYOUT].shape[-5:] if LAYOUT in params else ()


def legal_actions(
    params: Params, stack: Shaped[Array, "batch inputs"]
) -> Bool[Array, "batch action"] | None:
    """Returns which actions the newest frames allow; None where they hold no mask."""
    choices = (layout_of(params) or (0,))[-1]
    return stack[:, -choices:] > 0 if choices else None


def embed(
    count: int, taus: Float[Array, "*batch quantile"]
) -> Float[Array, "*batch quantile cosine"]:
    """Computes φ_i(τ) = cos(π i τ), i = 1..count (the paper starts at 0, a constant)."""
    return jnp.cos(jnp.pi * jnp.arange(1, count + 1, dtype=jnp.float32) * taus[..., None])


def combine_heads(
    value: Float[Array, "*batch 1"], advantage: Float[Array, "*batch action"]
) -> Float[Array, "*batch action"]:
    """Computes v + a − mean_actions a."""
    return value + advantage - advantage.mean(-1, keepdims=True)


def _uniform(
    flax_key: Array, shape: tuple[int, ...], init_key: Array | None, part: int, bound: float
) -> Array:
    # Flax asks for the shape also when it applies, then without an init key.
    keys = jax.random.split(flax_key if init_key is None else init_key)
    return jax.random.uniform(keys[part], shape, jnp.float32, -bound, bound)


# Acting.


def epsilon_at(
    acting: Acting, transitions: Int[Array, ""], episodes: Int[Array, ""] | Float[Array, ""]
) -> Float[Array, ""]:
    """Computes epsilon after an agent's transitions and finished episodes in all envs.

    Both counts include the prefill.
    """
    schedule = acting.epsilon
    if isinstance(schedule, LinearEpsilon):
        elapsed = transitions.astype(jnp.float32) / schedule.over_transitions
        epsilon = schedule.start - (schedule.start - schedule.end) * elapsed
    else:
        epsilon = schedule.start * (1 - schedule.decay) ** episodes.astype(jnp.float32)
    return jnp.maximum(jnp.float32(schedule.end), epsilon)


def midpoints(count: int) -> Float[Array, "1 quantile"]:
    """Returns (g + 1/2) / G, quantiles whose mean has no sampling noise."""
    return (jnp.arange(count, dtype=jnp.float32)[None] + 0.5) / count


def greedy_actions(
    config: LearnerConfig,
    params: Params,
    stack: Shaped[Array, "batch inputs"],
    taus: Float[Array, "_ quantile"],
) -> Int8[Array, " batch"]:
    """Returns the actions with the greatest q(s, a), an agent's mean of Z over `taus`, no noise."""
    values = apply(config.network, params, stack, taus)
    return greedy_action(values, legal_actions(params, stack)).astype(jnp.int8)


def pick(params: Params, index: Int[Array, ""] | int) -> Params:
    """Returns the parameters at an index of their first axis: of a seed, or of an agent."""
    return jax.tree.map(lambda leaf: leaf[index], params)


def greedy_policy(config: LearnerConfig, params: Params) -> Policy:
    """Returns the policy of all agents, greedy at the midpoints; `params` begin with axis agent."""
    return lambda _key, agent, stack, _states: greedy_actions(
        config, pick(params, agent), stack, midpoints(config.train.acting.quantiles)
    )


def epsilon_greedy_actions(
    config: LearnerConfig,
    params: Params,
    key: Key[Array, ""],
    stack: Shaped[Array, "batch inputs"],
    epsilon: Float[Array, ""],
) -> Int8[Array, " batch"]:
    """Returns an agent's actions: greedy, or with probability epsilon uniform over legal ones."""
    acting = config.train.acting
    batch = len(stack)
    taus_key, explore_key, action_key = jax.random.split(key, 3)
    taus = midpoints(acting.quantiles)
    if acting.taus == "uniform":
        taus = jax.random.uniform(taus_key, (batch, acting.quantiles))
    explores = jax.random.uniform(explore_key, (batch,)) < epsilon
    legal = legal_actions(params, stack)
    if legal is None:
        drawn = jax.random.randint(action_key, (batch,), 0, count_actions(params), jnp.int8)
    else:
        drawn = jax.random.categorical(action_key, jnp.log(legal)).astype(jnp.int8)
    return jnp.where(explores, drawn, greedy_actions(config, params, stack, taus))


def explore(
    config: LearnerConfig, params: Params, transitions: Int[Array, ""], episodes: Int[Array, ""]
) -> tuple[Policy, Float[Array, ""]]:
    """Returns the policy of all agents that is greedy, or random with probability epsilon, and
    epsilon; the counts are those of `epsilon_at`.
    """
    epsilon = epsilon_at(config.train.acting, transitions, episodes)

    def act(key: Array, agent: Array, stack: Array, _states: Any) -> Array:
        return epsilon_greedy_actions(config, pick(params, agent), key, stack, epsilon)

    return act, epsilon


# Programs that environments on the host call in each turn.


@lru_cache(maxsize=4)
def exploring_program(config: LearnerConfig) -> Callable[..., tuple[Array, Array]]:
    """Returns the compiled `explore` of all seeds: (parameters, keys, turns, transitions, episodes,
    stacks) -> actions (seed, agent, env) and the epsilon of each seed.
    """

    def act(seed: tuple) -> tuple[Int8[Array, "agent env"], Float32[Array, ""]]:
        params, key, turns, transitions, episodes, stacks = seed
        epsilon = epsilon_at(config.train.acting, transitions, episodes)
        policy = partial(epsilon_greedy_actions, config, epsilon=epsilon)
        keys = jax.random.split(jax.random.fold_in(key, turns), len(stacks))
        return jax.vmap(lambda *agent: policy(*agent))(params, keys, stacks), epsilon

    mapped = over_seeds(act, config.train.seed_parallelism)
    return jax.jit(lambda *seeds: mapped(seeds))


@lru_cache(maxsize=4)
def greedy_program(config: LearnerConfig) -> Callable[[Params, Any], Array]:
    """Returns the compiled greedy policy of one seed: its parameters, stacks (agent, env, inputs)
    -> actions (agent, env).
    """
    taus = midpoints(config.train.acting.quantiles)
    return jax.jit(jax.vmap(lambda params, stack: greedy_actions(config, params, stack, taus)))


# Values.


class ActionValues(NamedTuple):
    action: Int[AnyArray, " batch"]
    values: Float[AnyArray, "batch action"]
    quantiles: Float[AnyArray, "batch quantile action"]


def values_by(
    config: LearnerConfig, params: Params
) -> Callable[[Shaped[np.ndarray, "batch inputs"], Int[np.ndarray, " batch"]], ActionValues]:
    """Returns what computes the values of stacks by the networks of these agents; it compiles a
    program for each of few sizes.
    """

    @jax.jit
    def compute(params: Params, agent: Array, stacks: Array) -> ActionValues:
        taus = midpoints(config.train.acting.quantiles)
        quantiles = apply(config.network, pick(params, agent), stacks, taus)
        action = greedy_action(quantiles, legal_actions(params, stacks))
        return ActionValues(action.astype(jnp.int32), quantiles.mean(1), quantiles)

    def answer(stacks: np.ndarray, agents: np.ndarray) -> ActionValues:
        rows_of = [np.flatnonzero(agents == agent) for agent in range(agents.max() + 1)]
        parts = [
            in_blocks(partial(compute, params, np.int32(agent)), stacks[rows])
            for agent, rows in enumerate(rows_of)
            if len(rows)
        ]
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate(rows_of))
        return ActionValues(*(np.concatenate(part)[order] for part in zip(*parts, strict=True)))

    return answer
