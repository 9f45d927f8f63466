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
    """Steps of agents are counted by environment, those of learning by window."""
    with threads(1):
        found = [row for kind in ("mlp", "rbf") for row in agent_rows(root, kind, rounds)]
    for count in THREADS:
        with threads(count):
            for kind, batch in GOALS:
                found.append(
                    update_row(root, kind, batch, rounds)._replace(
                        name=update_name(kind, batch, count)
                    )
                )
    return found


def sized(root: Path, kind: str, batch_size: int) -> Vaes:
    return vaes_of(sides_of(root, 1, **changed(kind, batch_size, SIDE)))


# Acting.


def agent_rows(root: Path, kind: str, rounds: int) -> list[Row]:
    """A belief of what was seen, and what the dynamics say of the next; before: of the last 20 transitions anew."""
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
    one = Without("the batch: one environment", times["one"])
    return [
        row(name, ours=times["one"], without=window, goal=Goal(3, "before")),
        row(f"  ours: {ENVIRONMENTS} environments at once", ours=times["many"], without=one),
    ]


def transitions_of(vaes: Vaes) -> Windows:
    """Of the replay, one window that is as long as what is timed, or as the replay."""
    kept = windows.last(vaes.ring, min(AGENT_STEPS, vaes.ring.stored))
    starts = torch.zeros(1, dtype=torch.int64)
    return Windows(kept.observations[0, :, None], kept.actions[0, :, None], starts)


def plain_steps(vaes: Vaes, agent: plain.Agent) -> Contestant:
    seen = plain_window(transitions_of(vaes))
    pairs = list(zip(seen.observations[0], seen.actions[0], strict=True))

    def run() -> None:
        for observation, action in pairs:
            agent.step(observation, action)

    return Contestant(run, len(pairs))


def own_steps(vaes: Vaes, environments: int) -> Contestant:
    """The state of the recurrent encoder is carried on."""
    network, seen = vaes.worker.network, transitions_of(vaes)
    observations, actions = (part.expand(-1, environments, -1).contiguous() for part in seen[:2])
    pairs = list(zip(observations, actions, strict=True))

    def run() -> None:
        carried = Carried(network, environments)
        for observation, action in pairs:
            carried.step(observation, action)

    return Contestant(run, len(pairs) * environments)


def window_steps(vaes: Vaes) -> Contestant:
    """The same network, which encodes its last transitions anew in each step."""
    network, seen = vaes.worker.network, transitions_of(vaes)
    inputs, carried = (
        torch.cat([seen.observations, seen.actions], 2),
        Carried(vaes.worker.network, 1),
    )
    times = range(LENGTH, len(inputs) + 1)

    @torch.no_grad()
    def run() -> None:
        for time in times:
            carried.predict(seen.actions[time - 1])
            states = network.encoder(
                inputs[time - LENGTH : time], network.encoder.initial_hidden(1)
            )
            carried.belief = network.encoder.belief(states[-1]).mean

    return Contestant(run, len(times))


class Carried:
    """The project's belief from step to step, and what its dynamics said of it."""

    def __init__(self, network: SeqVae, environments: int) -> None:
        self.network, self.hidden = network, network.encoder.initial_hidden(environments)
        self.transition_model = network.transition_model()
        self.effect = network.control * network.dt
        self.belief = network.encoder.belief(self.hidden).mean.detach()
        self.predicted = self.belief

    def predict(self, action: Tensor) -> None:
        """What comes of it, by the dynamics."""
        self.predicted = self.transition_model.mean(self.belief.T[None], self.effect @ action.T)[0].T

    @torch.no_grad()
    def step(self, observation: Tensor, action: Tensor) -> Tensor:
        """Of all environments."""
        encoder = self.network.encoder
        self.predict(action)
        self.hidden = encoder.step(torch.cat([observation, action], 1), self.hidden)
        self.belief = encoder.belief(self.hidden).mean
        return self.belief


def refuse_another_belief(vaes: Vaes) -> None:
    """As long as all of an episode is in the window, beliefs and predictions must be the same.

    Raises:
        NotTheSame: they are not.
    """
    seen, carried = transitions_of(vaes), Carried(vaes.worker.network, 1)
    agent = plain.Agent(vaes.plain.encoder, vaes.plain.predicted, RecentRollout(LENGTH))
    for time in range(LENGTH):
        before = agent.belief
        belief = agent.step(seen.observations[time, 0], seen.actions[time, 0])
        found = carried.step(seen.observations[time], seen.actions[time])[0]
        if not torch.allclose(found, belief, atol=1e-5):
            raise NotTheSame(
                f"agent step {time}: the carried belief is not that of the whole window"
            )
        if before is not None:
            expected = vaes.plain.predicted(before, seen.actions[time, 0]).mean
            if not torch.allclose(carried.predicted[0], expected, atol=1e-5):
                raise NotTheSame(f"agent step {time}: the dynamics predict something else")


# Learning.


def update_name(kind: str, batch: int, thread_count: int) -> str:
    """What is done, and by how many threads."""
    dynamics = "MLP" if kind == "mlp" else f"RBF, {SIDE**2} centres"
    return f"train step, B={batch}, {dynamics}, process of {thread_count} thread(s), by window; before: B=1, a new Adam"


def update_row(root: Path, kind: str, batch: int, rounds: int) -> Row:
    """Sampling, bound, gradient, Adam, and what is noted."""
    vaes = sized(root, kind, batch)
    refuse_another_loss(vaes)
    sides = {"before": plain_update(vaes), "ours": own_update(vaes), "limit": products(vaes)}
    if batch > 1:
        sides["alone"] = own_update(sized(root, kind, 1))
    times = race(sides, rounds)
    alone = Without("the batch: one window", times["alone"]) if batch > 1 else None
    return Row(
        update_name(kind, batch, 1), UNIT, times["ours"], times["before"], limit=times["limit"], without=alone,
        goal=goal_of(kind, batch),
    )  # fmt: skip


def goal_of(kind: str, batch: int) -> Goal:
    return Goal(GOALS[kind, batch], "before")


def plain_update(vaes: Vaes) -> Contestant:
    """A window that the replay holds last."""
    kept, chosen = windows.last(vaes.ring, LENGTH), settings_of(vaes)
    window = plain.Window(kept.observations.clone(), kept.actions.clone())

    def run() -> None:
        for _ in range(UPDATES):
            plain.train_step(vaes.plain, window, chosen, torch.randn)

    return Contestant(run, UPDATES)


def own_update(vaes: Vaes) -> Contestant:
    batch = vaes.worker.config.train.seq_vae.batch_size

    def run() -> None:
        for _ in range(UPDATES):
            vaes.worker.learn(vaes.ring, 0)

    return Contestant(run, UPDATES * batch)


def products(vaes: Vaes) -> Contestant:
    """All products of matrices that a gradient step takes, as products of matrices of 64."""
    own = own_update(vaes)
    with FlopCounterMode(display=False) as counter:
        own.run()
    features, weight = torch.randn(PRODUCT, PRODUCT), torch.randn(PRODUCT, PRODUCT)
    return repeat(
        lambda: features @ weight, own.units * 2.0 * PRODUCT**3 / counter.get_total_flops()
    )
