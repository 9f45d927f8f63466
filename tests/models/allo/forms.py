"""Other forms of allo in tests, which tests/conftest.py reads."""

from quatrain.validation import overlaid
from tests.models.allo import user_envs

# Changes to params.yaml that name an input file, and lists of numbers.
INPUTS = {"env": {"layout": "inputs/allo/one_way.txt"}, "train": {"discount": [0.5, 0.9]}}
# Name -> changes to SMALL; the contract does not try them.
FORMS = {
    "user_env": overlaid(
        user_envs.section("Corridor"),
        {"train": {"steps": 60, "record_every": 20, "evaluate_every": 20}},
    )
}
