"""Config of the treasure hunt: map, items, agents, observations."""

from typing import Literal

from pydantic import Field

from quatrain.envs.treasurehunt.layouts import (
    BARE,
    FLOORS,
    ITEMS,
    Map,
    cells_of,
    open_map,
    parse_map,
    starts,
)
from quatrain.section import FileOrNone, Section, distinct

# Largest reward: a float32 sum over an episode still resolves it.
LARGEST = 1e6
# Names of other observation channels, and of the score `items_left`.
RESERVED = ("empty", "wall", "ground", "agent", "left")


class Entity(Section):
    """Holds a kind of item: its reward, and its share of all spawned items."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=32)
    value: float = Field(
        ge=-LARGEST, le=LARGEST, description="reward of the agent that steps on it"
    )
    weight: float = Field(
        ge=0, le=LARGEST, description="how often it spawns, relative to the other kinds"
    )


class Env(Section):
    """Holds the rules of a treasure hunt, and the number of parallel envs. Item k of a world is
    entities[k - 1].
    """

    worlds: int = Field(ge=1, le=65536, description="parallel training worlds")
    height: int | None = Field(
        ge=4, le=256, description="height of an open map; null with layout or layout_file"
    )
    width: int | None = Field(
        ge=4, le=256, description="width of an open map; null with layout or layout_file"
    )
    layout: str | None = Field(
        max_length=2**17, description="a map as text: # wall, . floor, - bare floor, A start, 1-9"
    )
    layout_file: FileOrNone = Field(description="a path such as inputs/iqn/map.txt, or null")
    agents: int = Field(ge=1, le=64)
    max_turns: int = Field(
        ge=1, le=10_000, description="turns of an episode, which is then truncated"
    )
    entities: tuple[Entity, ...] = Field(
        min_length=1, max_length=9, description="kinds of items, at most 9"
    )
    spawn_probability: float = Field(
        ge=0, le=1, description="probability of a new item in an empty cell, per turn"
    )
    wall_value: float = Field(ge=-LARGEST, le=LARGEST, description="reward for walking into a wall")
    agent_value: float = Field(
        ge=-LARGEST, le=LARGEST, description="reward for walking into another agent"
    )
    vision_radius: int = Field(ge=1, le=15, description="cells that an agent sees to each side")
    ground: Literal["sand", "plain"] = Field(
        description="sand: the ground is a channel of observations"
    )
    agent_order: Literal["fixed", "shuffled"] = Field(description="who acts first in a turn")

    @property
    def map(self) -> Map:
        """Returns the checked map.

        Raises:
            LayoutError: it cannot be read.
        """
        if self.layout_file is not None:
            return parse_map(self.layout_file.text, self.layout_file.name, len(self.entities))
        if self.layout is not None:
            return parse_map(self.layout, "layout", len(self.entities))
        assert self.height is not None
        assert self.width is not None
        return open_map(self.height, self.width)

    @property
    def channels(self) -> tuple[str, ...]:
        """Returns the names of an observation's channels, in order."""
        ground = ["ground"] if self.ground == "sand" else []
        return ("empty", "wall", *ground, *(entity.name for entity in self.entities), "agent")

    @property
    def frame_size(self) -> int:
        """Returns the size of one observation: channels times visible cells."""
        return len(self.channels) * (2 * self.vision_radius + 1) ** 2

    def check(self) -> None:
        sizes = (self.height is not None) + (self.width is not None)
        sources = (sizes > 0) + (self.layout is not None) + (self.layout_file is not None)
        if sources != 1 or sizes == 1:
            raise ValueError(
                "give height and width, or layout, or layout_file, not two of them; "
                "set the others to null"
            )
        self._check_entities()
        self._check_map()

    def _check_entities(self) -> None:
        names = [kind.name for kind in self.entities]
        distinct("entities", names)
        reserved = [name for name in names if name in RESERVED]
        if reserved:
            raise ValueError(
                f"entities: {reserved[0]!r} is the name of something else; "
                f"none of {', '.join(RESERVED)}"
            )
        if not any(kind.weight for kind in self.entities):
            raise ValueError(
                f"entities: the weights of {', '.join(names)} are all 0; at least one must grow"
            )

    def _check_map(self) -> None:
        rows = self.map.rows
        cells = len(starts(self.map))
        if self.agents > cells:
            raise ValueError(
                f"agents is {self.agents} but the map has {cells} start cells. "
                "Lower agents or enlarge the map."
            )
        largest = max(len(rows), len(rows[0])) - 1
        if self.vision_radius > largest:
            side = 2 * self.vision_radius + 1
            raise ValueError(
                f"vision_radius {self.vision_radius} sees {side}x{side} cells "
                f"of a {len(rows)}x{len(rows[0])} map. At most {largest} (= larger side - 1)."
            )
        if cells_of(self.map, ITEMS):
            return
        without_items = "and the layout has no items: no reward can be earned."
        if not self.spawn_probability:
            raise ValueError(f"spawn_probability is 0 {without_items}")
        if not cells_of(self.map, FLOORS.replace(BARE, "")):
            raise ValueError(f"the layout has no cell where items grow {without_items}")
