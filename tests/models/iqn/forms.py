"""Other forms of iqn in tests, which tests/conftest.py reads."""

from tests.models.iqn import user_envs

# Changes to params.yaml that name an input file.
SIZE = {"height": None, "width": None}
INPUTS = {"env": {**SIZE, "layout_file": "inputs/iqn/two_halls.txt", "agents": 4}}
# Name -> changes to SMALL, which the contract holds too.
VARIANTS = {"user_env": user_envs.section("OneStep")}
