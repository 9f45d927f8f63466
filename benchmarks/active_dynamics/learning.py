"""rows about the sequential VAE: an agent's step, and gradient steps on one window and on many."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.active_dynamics.sides import sides_of
from benchmarks.active_dynamics.vae import (
    Vaes,
    changed,
    plain_window,
    refuse_another_loss,
    settings_of,
    vaes_of,
)
from benchmarks.harness import Contestant, race
from benchmarks.reference import active_dynamics as plain
from benchmarks.reference.active_dynamics_rollout import RecentRollout, SeedRollout
from benchmarks.reference.active_dynamics_seed import PredictingAgent
from benchmarks.repeat import repeat
from benchmarks.table import Goal, NotTheSame, Row, Without
from benchmarks.torch_threads import threads
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.replay import windows
from quatrain.replay.windows import Windows

UNIT = "ms/step"
SIDE = 25
"""625 centres."""
BATCH = 32
GOALS = {("mlp", 1): 1.5, ("mlp", BATCH): 20.0, ("rbf", 1): 1.3}
"""Against the plain step of one window, by dynamics and windows at once."""
THREADS = (1, 2)
ENVIRONMENTS = 64
LENGTH = 20
AGENT_STEPS = 40
UPDATES = 3
PRODUCT = 64


def rows(root: Path, rounds: int) -> list[Row]:
    """Returns all rows. Agents' steps count per environment, training steps per window."""
    with threads(1):
        result = [row for kind in ("mlp", "rbf") for row in agent_rows(root, kind, rounds)]
    for count in THREADS:
        with threads(count):
            for kind, batch in GOALS:
                result.append(
                    update_row(root, kind, batch, rounds)._replace(
                        name=update_name(kind, batch, count)
                    )
                )
    return result


def sized(root: Path, kind: str, batch_size: int) -> Vaes:
    return vaes_of(sides_of(root, 1, **changed(kind, batch_size, SIDE)))


# Acting.


def agent_rows(root: Path, kind: str, rounds: int) -> list[Row]:
    """Returns rows about a belief and a prediction; before: encodes 20 transitions anew."""
    vaes = sized(root, kind, 1)
    refuse_another_belief(vaes)
    times = race(
        {
            "before": plain_steps(
                vaes, plain.Agent(vaes.plain.encoder, vaes.plain.predicted, RecentRollout(LENGTH))
            ),
            "seed": plain_steps(
                vaes, PredictingAgent(vaes.plain.encoder, vaes.plain.predicted, SeedRollout(LENGTH))
            ),
            "one": own_steps(vaes, 1),
            "many": own_steps(vaes, ENVIRONMENTS),
            "window": window_steps(vaes),
        },
        rounds,
    )
    dynamics = "MLP" if kind == "mlp" else f"RBF, {SIDE**2} centres"
    row = partial(
        Row, unit=UNIT, before=times["before"], seed_way=times["seed"], claims=("dynamics-encoder",)
    )
    name = f"agent step, {dynamics}; seed's way: hears no observation"
    window = Without("the carried state: the whole window", times["window"])
    single = Without("the batch: one environment", times["one"])
    return [
        row(name, ours=times["one"], without=window, goal=Goal(3, "before")),
        row(f"  ours: {ENVIRONMENTS} environments at once", ours=times["many"], without=single),
    ]


def transitions_of(vaes: Vaes) -> Windows:
    """Returns the last transitions of the replay as one window."""
    recent = windows.last(vaes.ring, min(AGENT_STEPS, vaes.ring.stored))
    starts = torch.zeros(1, dtype=torch.int64)
    return Windows(recent.observations[0, :, None], recent.actions[0, :, None], starts)


def plain_steps(vaes: Vaes, agent: plain.Agent) -> Contestant:
    observed = plain_window(transitions_of(vaes))
    pairs = list(zip(observed.observations[0], observed.actions[0], strict=True))

    def run() -> None:
        for observation, action in pairs:
            agent.step(observation, action)

    return Contestant(run, len(pairs))


def own_steps(vaes: Vaes, environments: int) -> Contestant:
    """Times steps that carry the hidden state of the recurrent encoder."""
    network, observed = vaes.worker.network, transitions_of(vaes)
    observations, actions = (
        part.expand(-1, environments, -1).contiguous() for part in observed[:2]
    )
    pairs = list(zip(observations, actions, strict=True))

    def run() -> None:
        carried = Carried(network, environments)
        for observation, action in pairs:
            carried.step(observation, action)

    return Contestant(run, len(pairs) * environments)


def window_steps(vaes: Vaes) -> Contestant:
    """Times steps of the same network that encode the last transitions anew."""
    network, observed = vaes.worker.network, transitions_of(vaes)
    inputs, carried = (
        torch.cat([observed.observations, observed.actions], 2),
        Carried(vaes.worker.network, 1),
    )
    times = range(LENGTH, len(inputs) + 1)

    @torch.no_grad()
    def run() -> None:
        for time in times:
            carried.predict(observed.actions[time - 1])
            states = network.encoder(
                inputs[time - LENGTH : time], network.encoder.initial_hidden(1)
            )
            carried.belief = network.encoder.belief(states[-1]).mean

    return Contestant(run, len(times))


class Carried:
    """Carries the project's belief from step to step, and predicts the next."""

    def __init__(self, network: SeqVae, environments: int) -> None:
        self.network, self.hidden = network, network.encoder.initial_hidden(environments)
        self.transition_model = network.transition_model()
        self.effect = network.control * network.dt
        self.belief = network.encoder.belief(self.hidden).mean.detach()
        self.predicted = self.belief

    def predict(self, action: Tensor) -> None:
        """Predicts the next state."""
        self.predicted = self.transition_model.mean(self.belief.T[None], self.effect @ action.T)[
            0
        ].T

    @torch.no_grad()
    def step(self, observation: Tensor, action: Tensor) -> Tensor:
        """Updates the beliefs of all environments."""
        encoder = self.network.encoder
        self.predict(action)
        self.hidden = encoder.step(torch.cat([observation, action], 1), self.hidden)
        self.belief = encoder.belief(self.hidden).mean
        return self.belief


def refuse_another_belief(vaes: Vaes) -> None:
    """Compares beliefs and predictions while the whole episode is in the window.

    Raises:
        NotTheSame: they are not.
    """
    observed, carried = transitions_of(vaes), Carried(vaes.worker.network, 1)
    agent = plain.Agent(vaes.plain.encoder, vaes.plain.predicted, RecentRollout(LENGTH))
    for time in range(LENGTH):
        before = agent.belief
        belief = agent.step(observed.observations[time, 0], observed.actions[time, 0])
        result = carried.step(observed.observations[time], observed.actions[time])[0]
        if not torch.allclose(result, belief, atol=1e-5):
            raise NotTheSame(
                f"agent step {time}: the carried belief is not that of the whole window"
            )
        if before is not None:
            expected = vaes.plain.predicted(before, observed.actions[time, 0]).mean
            if not torch.allclose(carried.predicted[0], expected, atol=1e-5):
                raise NotTheSame(f"agent step {time}: the dynamics predict something else")


# Learning.


def update_name(kind: str, batch: int, thread_count: int) -> str:
    """Returns a row's name: the work and the number of threads."""
    dynamics = "MLP" if kind == "mlp" else f"RBF, {SIDE**2} centres"
    return (
        f"train step, B={batch}, {dynamics}, process of {thread_count} thread(s), by window;"
        " before: B=1, a new Adam"
    )


def update_row(root: Path, kind: str, batch: int, rounds: int) -> Row:
    """Returns the row of sampling, bound, gradient, Adam step and metrics."""
    vaes = sized(root, kind, batch)
    refuse_another_loss(vaes)
    sides = {"before": plain_update(vaes), "ours": own_update(vaes), "limit": products(vaes)}
    if batch > 1:
        sides["alone"] = own_update(sized(root, kind, 1))
    times = race(sides, rounds)
    alone = Without("the batch: one window", times["alone"]) if batch > 1 else None
    return Row(
        update_name(kind, batch, 1),
        UNIT,
        times["ours"],
        times["before"],
        limit=times["limit"],
        without=alone,
        goal=goal_of(kind, batch),
    )


def goal_of(kind: str, batch: int) -> Goal:
    return Goal(GOALS[kind, batch], "before")


def plain_update(vaes: Vaes) -> Contestant:
    """Times plain steps on the last window of the replay."""
    recent, settings = windows.last(vaes.ring, LENGTH), settings_of(vaes)
    window = plain.Window(recent.observations.clone(), recent.actions.clone())

    def run() -> None:
        for _ in range(UPDATES):
            plain.train_step(vaes.plain, window, settings, torch.randn)

    return Contestant(run, UPDATES)


def own_update(vaes: Vaes) -> Contestant:
    batch = vaes.worker.config.train.seq_vae.batch_size

    def run() -> None:
        for _ in range(UPDATES):
            vaes.worker.learn(vaes.ring, 0)

    return Contestant(run, UPDATES * batch)


def products(vaes: Vaes) -> Contestant:
    """Times as many matrix operations as a gradient step needs, in products of 64 x 64."""
    ours = own_update(vaes)
    with FlopCounterMode(display=False) as counter:
        ours.run()
    features, weight = torch.randn(PRODUCT, PRODUCT), torch.randn(PRODUCT, PRODUCT)
    return repeat(
        lambda: features @ weight, ours.units * 2.0 * PRODUCT**3 / counter.get_total_flops()
    )
