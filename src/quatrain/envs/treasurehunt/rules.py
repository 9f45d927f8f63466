"""Rules of a treasure hunt, and the sizes derived from them."""

from typing import Literal, NamedTuple

from quatrain.envs.treasurehunt.layouts import Map, open_map


class Entity(NamedTuple):
    """Holds a kind of item: the reward for taking it, and its share of all spawned items."""

    name: str
    value: float
    weight: float


class Rules(NamedTuple):
    """Holds everything that a world depends on; hashable. Item k of a world is entities[k - 1].

    max_turns: turns of an episode. spawn_probability: per free cell and turn. wall_value,
    agent_value: rewards for walking into one. vision_radius: cells seen to each side. ground: sand
    adds a channel for the floor, which lies beneath everything. agent_order: within a turn.
    """

    map: Map
    agents: int
    max_turns: int
    entities: tuple[Entity, ...]
    spawn_probability: float
    wall_value: float
    agent_value: float
    vision_radius: int
    ground: Literal["sand", "plain"]
    agent_order: Literal["fixed", "shuffled"]


def channels(rules: Rules) -> tuple[str, ...]:
    """Returns the names of an observation's channels, in order."""
    ground = ["ground"] if rules.ground == "sand" else []
    entities = [entity.name for entity in rules.entities]
    return ("empty", "wall", *ground, *entities, "agent")


def frame_size(rules: Rules) -> int:
    """Returns D, the size of one observation: channels times visible cells."""
    return len(channels(rules)) * (2 * rules.vision_radius + 1) ** 2


# The world of social-ai-uoft/sorrel's treasurehunt example.
TREASUREHUNT = Rules(
    map=open_map(10, 10),
    agents=5,
    max_turns=50,
    entities=(Entity("gem", 10.0, 1.0),),
    spawn_probability=0.02,
    wall_value=-1.0,
    agent_value=0.0,
    vision_radius=2,
    ground="sand",
    agent_order="fixed",
)

# A larger world with rare items, a third of them harmful.
TREASUREHUNT_LARGE = Rules(
    map=open_map(21, 21),
    agents=2,
    max_turns=100,
    entities=(
        Entity("gem", 10.0, 1.0),
        Entity("bone", -10.0, 1.0),
        Entity("food", 5.0, 1.0),
    ),
    spawn_probability=0.005,
    wall_value=-1.0,
    agent_value=0.0,
    vision_radius=2,
    ground="plain",
    agent_order="fixed",
)
