"""rules, actions -> turns of one treasure hunt, the slow way: an object in every cell

Two layers of objects, every object asked in turn whether it changes, and an observation that adds
up the one-hot of every object of the map. It shares no code with the project.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


@dataclass(eq=False)
class Thing:
    """Represents the content of a cell's layer; `kind` is its channel."""

    kind: str
    value: float = 0.0
    passable: bool = False
    changes: bool = False
    location: tuple[int, int, int] | None = None


class ObjectWorld:
    """Simulates one world of `rules`; spawns and starts are drawn from `rng` unless passed."""

    def __init__(self, rules: Any, rng: np.random.Generator) -> None:
        self.rules = rules
        self.rng = rng
        self.height, self.width = len(rules.map.rows), len(rules.map.rows[0])
        weights = np.array([entity.weight for entity in rules.entities], np.float64)
        self.shares = weights / weights.sum()
        self.kinds = ["empty", "wall", *(["ground"] if rules.ground == "sand" else [])]
        self.kinds += [*(entity.name for entity in rules.entities), "agent"]
        self.appearance = {kind: np.zeros(len(self.kinds)) for kind in (*self.kinds, "nothing")}
        for channel, kind in enumerate(self.kinds[1:], start=1):
            self.appearance[kind][channel] = 1.0
        self.turn = 0
        self.agents: list[Thing] = []
        self.map = np.empty((self.height, self.width, 2), object)

    def put(self, location: tuple[int, int, int], thing: Thing) -> None:
        self.map[location] = thing
        thing.location = location

    def item(self, number: int) -> Thing:
        entity = self.rules.entities[number - 1]
        return Thing(entity.name, entity.value, passable=True)

    def reset(self, starts: Sequence[Sequence[int]] | None = None) -> None:
        """Resets to the map; agents on `starts`, or on cells drawn without replacement."""
        cells = []
        for (y, x), symbol in np.ndenumerate(np.array([list(row) for row in self.rules.map.rows])):
            sand = self.rules.ground == "sand"
            below = ("wall" if symbol == "#" else "ground") if sand else "nothing"
            self.put((y, x, 0), Thing(below, passable=True))
            if symbol == "#":
                self.put((y, x, 1), Thing("wall", self.rules.wall_value))
            elif symbol in "123456789":
                self.put((y, x, 1), self.item(int(symbol)))
            else:
                self.put((y, x, 1), self.floor(y, x))
                cells.append((y, x, symbol))
        marked = [cell for cell in cells if cell[2] == "A"] or cells
        if starts is None:
            picks = self.rng.choice(len(marked), self.rules.agents, replace=False)
            starts = [marked[i][:2] for i in picks]
        self.agents = [Thing("agent", self.rules.agent_value) for _ in range(self.rules.agents)]
        for agent, (y, x) in zip(self.agents, starts, strict=True):
            self.put((int(y), int(x), 1), agent)
        self.turn = 0

    def floor(self, y: int, x: int) -> Thing:
        """Returns free floor, where items may spawn unless the map forbids it."""
        return Thing("empty", passable=True, changes=self.rules.map.rows[y][x] != "-")

    def begin_turn(self, spawned: np.ndarray | None = None) -> None:
        """Spawns items on free floor: `spawned` (height, width) has that of each cell, or 0."""
        for index, thing in np.ndenumerate(self.map):
            if thing.changes:
                self.grow(index, spawned)

    def grow(self, index: tuple[int, int, int], spawned: np.ndarray | None) -> None:
        if spawned is not None:
            number = int(spawned[index[:2]])
        elif self.rng.random() < self.rules.spawn_probability:
            number = int(self.rng.choice(len(self.shares), p=self.shares)) + 1
        else:
            number = 0
        if number:
            self.put(index, self.item(number))

    def observe(self, agent: int) -> np.ndarray:
        """Returns a flat view (channels, rows, columns) around an agent, walls outside the map."""
        radius = self.rules.vision_radius
        whole = np.zeros((len(self.kinds), self.height, self.width))
        for (y, x, _), thing in np.ndenumerate(self.map):
            whole[:, y, x] += self.appearance[thing.kind]
        beyond = np.zeros((len(self.kinds), self.height + 2 * radius, self.width + 2 * radius))
        beyond[self.kinds.index("wall")] = 1.0
        beyond[:, radius : radius + self.height, radius : radius + self.width] = whole
        y, x, _ = self.agents[agent].location
        return beyond[:, y : y + 2 * radius + 1, x : x + 2 * radius + 1].reshape(-1)

    def act(self, agent: int, action: int) -> float:
        """Moves one agent if possible; returns its reward."""
        walker = self.agents[agent]
        y, x, layer = walker.location
        target = (y + MOVES[action][0], x + MOVES[action][1], layer)
        thing = self.map[target]
        if thing.passable:
            self.put(target, walker)
            self.put((y, x, layer), self.floor(y, x))
        return thing.value

    def end_turn(self) -> bool:
        """Returns whether the episode is over."""
        self.turn += 1
        return self.turn == self.rules.max_turns


def play_randomly(world: ObjectWorld, turns: int) -> float:
    """Plays random actions, each after an observation; returns an agent's mean return."""
    world.reset()
    earned = 0.0
    for _ in range(turns):
        world.begin_turn()
        for agent in range(world.rules.agents):
            world.observe(agent)
            earned += world.act(agent, int(world.rng.integers(len(MOVES))))
        if world.end_turn():
            world.reset()
    return earned / world.rules.agents * world.rules.max_turns / turns
