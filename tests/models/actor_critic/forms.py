"""Other forms of actor_critic in tests, which tests/conftest.py reads."""

from quatrain.validation import overlaid
from tests.models.actor_critic import user_envs

# Changes to params.yaml that name an input file.
COUNTS = {"plates": "user", "n_train": 1, "n_held_out": 1, "n_outside": 0}
INPUTS = {"collect": {**COUNTS, "plates_file": "inputs/actor_critic/two_steps.npy"}}
# Name -> changes to SMALL, which the contract holds too: a first record before all is learned.
VARIANTS = {
    "user_env": overlaid(
        user_envs.section("Signs"), {"train": {"record_every": 1, "learning_rate": 5e-3}}
    )
}
