"""Sizes of actor_critic in tests, which tests/conftest.py reads."""

# Changes to params.yaml that make a run take a second and still learn something.
SMALL = {
    "env": {
        "width": 60,
        "height": 60,
        "max_nodes": 32,
        "target_nodes": 6,
        "n0_min": 2,
        "n0_max": 8,
        "max_steps": 12,
        "left_limit": 5,
    },
    "collect": {
        "n_train": 3,
        "n_held_out": 4,
        "n_outside": 2,
        "held_out_colonies": 64,
        "validation_colonies": 16,
        "constant_search": 200,
    },
    "network": {"encoder": "attention", "d": 16, "layers": 1, "heads": 2},
    "train": {
        "num_envs": 24,
        "horizon": 8,
        "transitions": 24 * 8 * 8,
        "record_every": 2,
        "evaluate_every": 0,
        "minibatch_size": 64,
        "epochs": 4,
        "learning_rate": 0.01,
        "discount": 0.98,
        "discount_end": 0.98,
        "gae_lambda": 0.95,
        "target_kl": 0.2,
    },
    "evaluate": {"bootstrap_samples": 200},
}
# On top of it, twelve yields (`small_project.YIELDS`) at which a run can be cut off.
QUICK = {"train": {"transitions": 24 * 8 * 12, "record_every": 1}}
# Scores that reach every goal.
SCORES = (
    {"return_mean": 8.4, "margin_over_constant": 0.8, "fraction_of_feedback": 0.96}
    | {"success_rate": 1.0, "size_rmse": 5.0}
    | {"random_return": -2.8, "constant_return": 4.6, "feedback_return": 8.8}
)
