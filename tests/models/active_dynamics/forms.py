"""Other forms of active_dynamics in tests, which tests/conftest.py reads."""

# Changes to params.yaml that name an input file.
INPUTS = {"env": {"field": {"kind": "table", "table_file": "inputs/active_dynamics/wind.npz"}}}
# Name -> changes to SMALL, which the contract holds too.
VARIANTS = {
    "seq_vae": {
        "seeds": 1,
        "network": {"family": "seq_vae"},
        "train": {"seq_vae": {"batch_size": 8, "updates": 2}},
    }
}
