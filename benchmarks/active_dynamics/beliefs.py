"""config -> beliefs of the project, and the plain planner's model of them"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.reference import active_dynamics_planner as reference
from pipeline.storage.params_file import overlaid, read_input, read_raw, validate
from quatrain.models.active_dynamics.bayes_filter.filter import weights
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import Observation

SEED = 0
SMALL = {"collect": {"held_out_rollouts": 8, "starts": 8}, "train": {"arms": ["random"]}}
"""Sizes of what these comparisons do not use."""
LEARNED = 12
"""Transitions of the warm-up that beliefs have observed."""


def config_of(root: Path, learners: int, **sections: Any) -> ActiveDynamicsConfig:
    """Returns params.yaml with this number of learners and sections of active_dynamics changed."""
    changes = overlaid({"seeds": learners, **SMALL}, sections)
    raw = overlaid(read_raw(root, None), {"active_dynamics": changes})
    return validate(raw, lambda name: read_input(root, str(name))).active_dynamics


def beliefs_of(config: ActiveDynamicsConfig) -> BayesFilterLearner:
    """Returns beliefs after some transitions."""
    dataset = collect(config, SEED)
    result = BayesFilterLearner.init(config, dataset, np.random.SeedSequence(SEED))
    observations, following, actions, _, _, truncated = map(torch.tensor, dataset.train)
    for time in range(LEARNED):
        action, ended = actions[:, time], truncated[:, time]
        reached, after_reset = following[:, time], observations[:, time + 1]
        result.observe(Observation(action, action, reached, ended, after_reset))
    return result


def plain_planner_of(learner: BayesFilterLearner) -> reference.Model:
    """Returns the plain planner's model of the first belief, in single precision."""
    model = learner.filter
    d = model.d
    return reference.Model(
        centres=torch.cartesian_prod(*[model.rbf.axis] * d).float(),
        weight=weights(d, learner.belief)[0].float(),
        length=model.rbf.length,
        dt=model.dt,
        observation_matrix=model.emission.weight.float(),
        covariance=torch.diag(model.emission.noise_variance).float(),
        prior=learner.belief.covariance[0, d:, d:].float(),
    )
