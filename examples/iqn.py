"""Lets three agents learn on the map below: python examples/iqn.py"""

import quatrain

MAP = "\n".join(
    [
        "##########",
        "#A..#...A#",
        "#...#....#",
        "#..-----.#",
        "#....#...#",
        "#A...#...#",
        "##########",
    ]
)

result = quatrain.fit(
    "iqn",
    env={"height": None, "width": None, "layout": MAP, "agents": 3},
    network={"hidden": 64},
    train={"turns": 1000, "acting": {"epsilon": {"over_transitions": 5000}}},
)
for name, score in result.scores.items():
    print(f"{name:24s} {score:.4f}")
