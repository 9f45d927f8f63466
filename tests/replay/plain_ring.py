"""The ring's plain twin: every turn ever written in a list, whole episodes walked turn by turn. And
turns to write.
"""

from typing import NamedTuple

import numpy as np

from quatrain.replay.frames.ring import Transitions
from quatrain.replay.frames.sampling import Window


class PlainTransition(NamedTuple):
    """What a learner is told about one turn of one agent in one environment."""

    stack: np.ndarray
    action: int
    returns: float
    bootstrap: float
    next_stack: np.ndarray


class PlainRing:
    """A ring of `capacity` turns: turn `time` stands in slot `time % capacity` until another takes
    its place.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.history: list[Transitions] = []  # without the axis of turns

    def write(self, block: Transitions) -> None:
        for turn in range(len(block.turn)):
            self.history.append(Transitions(*(column[turn] for column in block)))

    def starts(self, window: Window) -> list[tuple[int, int]]:
        """(time, env) of all transitions that may be drawn, oldest first."""
        envs = range(self.history[0].turn.size)
        return [
            (time, env)
            for time in self._stored()
            for env in envs
            if self._is_start(time, env, window)
        ]

    def _stored(self) -> range:
        return range(max(0, len(self.history) - self.capacity), len(self.history))

    def _is_start(self, time: int, env: int, window: Window) -> bool:
        now = self.history[time]
        episode_began = time - int(now.turn[env])
        oldest_needed = max(episode_began, time - window.frames + 1)
        is_stored = {oldest_needed, time + window.n_step} <= set(self._stored())
        return is_stored and not now.final[env]

    def transition(self, time: int, env: int, agent: int, window: Window) -> PlainTransition:
        returns, discount, later = 0.0, 1.0, time
        for now in self.history[time : time + window.n_step]:
            if now.final[env]:
                break
            returns += discount * float(now.rewards[agent, env])
            if now.terminated[env]:
                discount, later = 0.0, time
                break
            discount, later = discount * window.discount, later + 1
        stack, next_stack = (self._stack(at, env, agent, window.frames) for at in (time, later))
        return PlainTransition(
            stack, int(self.history[time].actions[agent, env]), returns, discount, next_stack
        )

    def _stack(self, time: int, env: int, agent: int, frames: int) -> np.ndarray:
        """What the agent saw then: the last frames of its episode, oldest first, blank ones before
        the beginning.
        """
        began = time - int(self.history[time].turn[env])
        blank = np.zeros_like(self.history[time].frames[agent, env])
        times = range(time - frames + 1, time + 1)
        return np.concatenate(
            [self.history[at].frames[agent, env] if at >= began else blank for at in times]
        )


def tagged_turns(turns: int, agents: int, envs: int, ends: tuple[float, float]) -> Transitions:
    """Turns whose frames say (agent, env, episode, turn), each from 1; in every turn the
    episode of an environment may end. One that is truncated has a final turn more.

    Args:
        ends: probabilities that a turn is terminated, and truncated; it may be both.
    """
    rng = np.random.default_rng(0)
    terminated, truncated = (rng.random((turns, envs)) < share for share in ends)
    turn, episode = np.zeros((2, turns, envs), np.int16)
    final = np.zeros((turns, envs), bool)
    for now in range(1, turns):
        final[now] = truncated[now - 1] & ~terminated[now - 1] & ~final[now - 1]
        terminated[now] &= ~final[now]
        ended = terminated[now - 1] | final[now - 1]
        turn[now] = np.where(ended, 0, turn[now - 1] + 1)
        episode[now] = episode[now - 1] + ended
    shape = (turns, agents, envs)
    agent, env = np.arange(agents)[:, None], np.arange(envs)
    tags = np.stack(
        [np.broadcast_to(tag, shape) for tag in (agent, env, episode[:, None], turn[:, None])],
        axis=-1,
    )
    return Transitions(
        frames=(tags + 1).astype(np.int8),
        actions=rng.integers(0, 4, shape).astype(np.int8),
        rewards=rng.normal(size=shape).astype(np.float32),
        terminated=terminated,
        final=final,
        turn=turn,
    )
