"""the sequential VAE -> rows: an agent's step, and gradient steps on one window and on many"""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.active_dynamics.vae import LENGTH, Vaes, refuse_another_loss, settings_of, vaes_of
from benchmarks.harness import Goal, Row
from benchmarks.reference import active_dynamics as plain
from benchmarks.reference.active_dynamics import RecentRollout
from benchmarks.reference.active_dynamics_seed import PredictingAgent, SeedRollout
from benchmarks.torch_rows import Work, check_same, measured_row, products
from quatrain.frameworks.torch.threads import threads
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.replay import windows

SIDE = 25
"""625 centres."""
DYNAMICS = {"mlp": "MLP", "rbf": f"RBF, {SIDE**2} centres"}
BATCH = 32
GOALS = {("mlp", 1): 1.5, ("mlp", BATCH): 20.0, ("rbf", 1): 1.3}
"""Against the plain step of one window, by dynamics and windows at once."""
THREADS = (1, 2)
AGENT_STEPS = 40
PRODUCT = 64
TRIED = (
    "one step of the encoder in place of 20 is in; at a single state the field is a dozen small"
    " operations on either side, and sums along the axes cost as much as all 625 centres"
)


def rows(root: Path, rounds: int) -> list[Row]:
    """Measures agents' steps, and training steps, counted by window."""
    row = partial(measured_row, "ms/step", rounds)
    with threads(1):
        result = [agent_row(row, root, kind) for kind in DYNAMICS]
    for count in THREADS:
        with threads(count):
            result += [update_row(row, root, *work, count) for work in GOALS]
    return result


# Acting.


def agent_row(row: partial[Row], root: Path, kind: str) -> Row:
    """Measures a belief and a prediction; before: encodes 20 transitions anew."""
    vaes = vaes_of(root, kind, 1, SIDE)
    refuse_another_belief(vaes)
    model = vaes.plain
    proposed = PredictingAgent(model.encoder, model.predicted, SeedRollout(LENGTH))
    works = {
        "before": partial(plain_steps, vaes, plain_agent(vaes)),
        "seed_way": partial(plain_steps, vaes, proposed),
        "ours": partial(own_steps, vaes),
    }
    name = f"agent step, {DYNAMICS[kind]}; seed's way: hears no observation"
    units = dict.fromkeys(works, AGENT_STEPS)
    goal = Goal(3, "before")
    return row(name, works, "", units, goal=goal, tried=TRIED, claims=("dynamics-encoder",))


def plain_agent(vaes: Vaes) -> plain.Agent:
    return plain.Agent(vaes.plain.encoder, vaes.plain.predicted, RecentRollout(LENGTH))


def transitions_of(vaes: Vaes) -> list[tuple[Tensor, Tensor]]:
    """Returns the last observations and actions of the replay, each a batch of one."""
    recent = windows.last(vaes.ring, AGENT_STEPS)
    return list(zip(*(part[0, :, None] for part in recent[:2]), strict=True))


def plain_steps(vaes: Vaes, agent: plain.Agent) -> None:
    for observation, action in transitions_of(vaes):
        agent.step(observation[0], action[0])


def own_steps(vaes: Vaes) -> None:
    carried = Carried(vaes.trainer.network)
    for observation, action in transitions_of(vaes):
        carried.step(observation, action)


class Carried:
    """Carries the encoder's hidden state from step to step, and predicts the next belief."""

    def __init__(self, network: SeqVae) -> None:
        self.encoder = network.encoder
        self.hidden = network.encoder.initial_hidden(1)
        self.transition_model = network.transition_model()
        self.effect = network.control * network.dt
        self.belief = network.encoder.belief(self.hidden).mean.detach()

    @torch.no_grad()
    def step(self, observation: Tensor, action: Tensor) -> Tensor:
        """Updates the belief; returns what was predicted of it."""
        effect = self.effect @ action.T
        predicted = self.transition_model.mean(self.belief.T[None], effect)[0].T
        self.hidden = self.encoder.step(torch.cat([observation, action], 1), self.hidden)
        self.belief = self.encoder.belief(self.hidden).mean
        return predicted


def refuse_another_belief(vaes: Vaes) -> None:
    """Compares beliefs and predictions while the whole episode is in the window; the beliefs are
    those of the project's trainer.
    """
    carried, agent = Carried(vaes.trainer.network), plain_agent(vaes)
    vaes.trainer.restart(torch.tensor(True))
    for time, (observation, action) in enumerate(transitions_of(vaes)[:LENGTH]):
        before = agent.belief
        belief = agent.step(observation[0], action[0])
        predicted = carried.step(observation, action)[0]
        check_same(f"agent step {time}: belief", carried.belief[0], belief)
        observed = vaes.trainer.observe(observation[0], action[0])
        check_same(f"agent step {time}: belief of the trainer", observed.mean, belief)
        if before is not None:
            expected = vaes.plain.predicted(before, action[0]).mean
            check_same(f"agent step {time}: prediction", predicted, expected)


# Learning.


def update_row(row: partial[Row], root: Path, kind: str, batch: int, thread_count: int) -> Row:
    """Measures sampling, bound, gradient, Adam step and metrics."""
    vaes = vaes_of(root, kind, batch, SIDE)
    refuse_another_loss(vaes)
    ours = partial(vaes.trainer.learn, vaes.ring, 0)
    limit, share = products(ours, PRODUCT, PRODUCT, PRODUCT)
    works = {"ours": ours, "before": plain_update(vaes), "limit": limit}
    if batch > 1:
        alone = vaes_of(root, kind, 1, SIDE)
        works["without"] = partial(alone.trainer.learn, alone.ring, 0)
    name = f"train step, B={batch}, {DYNAMICS[kind]}, process of {thread_count} thread(s)"
    name = f"{name}, by window; before: B=1, a new Adam"
    goal = Goal(GOALS[kind, batch], "before")
    lacking = "the batch: one window" if batch > 1 else ""
    return row(name, works, lacking, {"ours": batch, "limit": batch * share}, goal=goal)


def plain_update(vaes: Vaes) -> Work:
    """Takes steps on the last window of the replay."""
    recent, settings = windows.last(vaes.ring, LENGTH), settings_of(vaes)
    window = plain.Window(recent.observations.clone(), recent.actions.clone())
    return lambda: plain.train_step(vaes.plain, window, settings, torch.randn)
