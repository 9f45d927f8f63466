"""Learns the eigenvectors of the map below: python examples/allo.py"""

import quatrain

MAP = "\n".join(
    [
        "XXXXXXXXX",
        "X...X...X",
        "X.......X",
        "X...X...X",
        "XX.XXX.XX",
        "X...X...X",
        "X...X...X",
        "XXXXXXXXX",
    ]
)

result = quatrain.fit(
    "allo",
    env={"layout": {"name": "two halls", "text": MAP}},
    network={"d": 6},
    train={"steps": 5000, "evaluate_every": 500},
)
for name, score in result.scores.items():
    print(f"{name:32s} {score:.4f}")
