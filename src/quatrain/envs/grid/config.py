"""params.yaml's section `allo.env` -> a frozen, checked config with an existing map."""

from functools import lru_cache
from typing import Literal

from pydantic import Field

from quatrain.envs.grid.catalogue import maze, named_layout, rooms
from quatrain.envs.grid.layouts import Components, Layout, keep_components, parse_layout
from quatrain.section import InputFile, NameOrFile, Section, together

# Limit of a map: 256 x 256 cells, whose numbers fit into 16 bits.
MAX_STATES = 65_536


class Rooms(Section):
    """Sets the generator behind `layout: rooms`."""

    rows: int = Field(ge=1, le=64, description="rooms from top to bottom")
    cols: int = Field(ge=1, le=64, description="rooms from left to right")
    height: int = Field(ge=1, le=256, description="free cells of a room from top to bottom")
    width: int = Field(ge=1, le=256, description="free cells of a room from left to right")
    extra_doors: int = Field(ge=0, description="doors beyond those of the spanning tree")
    seed: int = Field(ge=0, lt=2**32)

    def check(self) -> None:
        cells = self.rows * self.cols * self.height * self.width
        if cells > MAX_STATES:
            raise ValueError(f"{cells:,} cells; at most {MAX_STATES:,}")


class Maze(Section):
    """Sets the generator behind `layout: maze`."""

    width: int = Field(ge=5, le=199, description="cells, odd")
    height: int = Field(ge=5, le=199, description="cells, odd")
    braid: float = Field(ge=0, le=1, description="probability that a dead end is opened")
    seed: int = Field(ge=0, lt=2**32)


class Fourier(Section):
    """Sets random Fourier features of a cell's centred coordinates.

    [x, y, sin(B xy), cos(B xy)], B ~ N(0, scale²).
    """

    scale: float = Field(gt=0, le=100)
    count: int = Field(ge=1, le=4096, description="rows of B; the encoder has 2 + 2*count inputs")


class Env(Section):
    """Sets the grid world."""

    layout: NameOrFile = Field(
        description="a catalogue name, `rooms`, `maze`, or a path such as inputs/allo/map.txt"
    )
    layout_components: Components = Field(
        description="which connected components of the map are kept"
    )
    rooms: Rooms | None = Field(description="only with layout: rooms, else null")
    maze: Maze | None = Field(description="only with layout: maze, else null")
    observation: Literal["centred", "corner", "paper", "fourier"] = Field(
        description="encoder input for a cell"
    )
    fourier: Fourier | None = Field(description="only with observation: fourier, else null")
    start: Literal["uniform", "layout"] = Field(
        description="where a trajectory starts; layout: at S if the map has one"
    )
    max_episode_steps: int = Field(
        ge=1, le=10**7, description="transitions after which a trajectory is truncated"
    )

    @property
    def map(self) -> Layout:
        """Returns the layout, reduced to the selected components.

        Raises:
            LayoutError: the map cannot be read or does not fit the other keys.
        """
        return _map(self)

    @property
    def name(self) -> str:
        """Returns what messages and plots call the environment."""
        return self.map.name

    def check(self) -> None:
        together(self, "layout", "rooms", "rooms")
        together(self, "layout", "maze", "maze")
        together(self, "observation", "fourier", "fourier")


@lru_cache(maxsize=16)
def _map(env: Env) -> Layout:
    if isinstance(env.layout, InputFile):
        layout = parse_layout(env.layout.text, env.layout.name)
    elif env.layout == "rooms" and env.rooms is not None:
        layout = rooms(**env.rooms.model_dump())
    elif env.layout == "maze" and env.maze is not None:
        layout = maze(**env.maze.model_dump())
    else:
        layout = named_layout(env.layout)
    return keep_components(layout, env.layout_components)
