"""rows about training as a whole: an iteration of the original, of the original with all proposals,
and of ours.
"""

import torch

from benchmarks.actor_critic.learning import ENTROPY_COEF, changed, trainer_of
from benchmarks.actor_critic.playing import CELLS, CLAIM, begin_again
from benchmarks.actor_critic.sides import (
    Sides,
    colonies_of,
    plain_colony,
    plain_network,
    plain_scale,
    sized,
)
from benchmarks.harness import Contestant, race
from benchmarks.reference import actor_critic as reference
from benchmarks.reference.actor_critic_iteration import BEFORE, SEED, Iteration, Ways, iterate
from benchmarks.table import NotTheSame, Row, Without
from benchmarks.torch_threads import threads
from quatrain.models.actor_critic.ppo.iteration import run_iteration

UNIT = "ms/step"
DRAWS = 0
EPOCHS = 2
COLONIES, HORIZON, MINIBATCH = 64, 16, 256
"""Of ours, in an iteration."""
PLAIN_STEPS, COSTLY_STEPS = 16, 2
"""Of the original's one colony in an iteration: without residual networks, and with."""
ANY_KL = 1e9


def rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures a rollout, advantages, and two epochs of updates, per transition."""
    refuse_another_iteration(sides)
    plain = {"before": BEFORE, "seed": SEED}
    with threads(1):
        contestants = {
            **{name: plain_training(sides, ways, PLAIN_STEPS, 0) for name, ways in plain.items()},
            **{
                f"{name}, images": plain_training(sides, ways, COSTLY_STEPS, 2)
                for name, ways in plain.items()
            },
            "ours": own_training(sides, COLONIES),
            "one": own_training(sides, 1),
        }
        times = race(contestants, rounds)
    name = f"training iteration, {CELLS} cells, by transition"
    item = Without("the batch: one colony, minibatches of its steps", times["one"])
    return [
        Row(
            f"{name}; before: ResNet18, twice; seed's way: all four items", UNIT, times["ours"],
            times["before, images"], times["seed, images"], without=item,
            claims=("colony-overall", CLAIM),
        ),
        Row(
            "  before: no ResNet18", UNIT, times["ours"], times["before"], times["seed"],
            claims=("colony-overall",)
        ),
    ]  # fmt: skip


def own_training(sides: Sides, colonies: int) -> Contestant:
    """Trains as `train` does."""
    keys = {"num_envs": colonies, "horizon": HORIZON, "minibatch_size": MINIBATCH, "epochs": EPOCHS}
    project = sides._replace(world=sized(sides.world, CELLS))
    trainer = trainer_of(project, changed(sides.config, target_kl=ANY_KL, **keys))
    return Contestant(lambda: run_iteration(trainer), colonies * HORIZON)


def plain_training(sides: Sides, ways: Ways, steps: int, passes: int) -> Contestant:
    """Trains one plain colony. passes: through residual networks per step, or 0."""
    iteration = Plain(sides, ways, steps, passes)
    return Contestant(iteration.run, steps)


class Plain:
    """Holds a colony that restarts with each iteration, its network and its optimiser."""

    def __init__(self, sides: Sides, ways: Ways, steps: int, passes: int) -> None:
        world, config = sized(sides.world, CELLS), sides.config.train
        self.begun, self.ways = colonies_of(world, 1), ways
        self.network = plain_network(sides.config, images=passes > 0)
        self.network.load_state_dict(sides.network.state_dict(), strict=False)
        params = [param for param in self.network.parameters() if param.requires_grad]
        self.optimiser = torch.optim.Adam(params, lr=config.learning_rate, eps=config.adam_eps)
        colony = plain_colony(world, self.begun, 0)
        self.acting = reference.Acting(
            self.network, colony, plain_scale(sides.actor), sides.box, max(1, passes)
        )
        volume = (sides.box.high - sides.box.low).log().sum().item()
        coefs = reference.Coefficients(
            config.clip, config.value_coef, ENTROPY_COEF, config.max_grad_norm, volume
        )
        self.asked = Iteration(steps, EPOCHS, config.discount, config.gae_lambda, coefs)

    def run(self) -> list[float]:
        """Runs one iteration."""
        begin_again(self.acting.colony, self.begun)
        return iterate(self.acting, self.optimiser, self.ways, self.asked)


def refuse_another_iteration(sides: Sides) -> None:
    """Checks that training is the same with the proposals and without; agreement with the project
    is checked part by part.

    Raises:
        NotTheSame: it is not.
    """
    result = []
    for ways in (BEFORE, SEED):
        with torch.random.fork_rng():
            torch.manual_seed(DRAWS)
            result.append(Plain(sides, ways, PLAIN_STEPS, 0).run())
    if not torch.allclose(*map(torch.tensor, result), rtol=1e-3, atol=1e-4):
        raise NotTheSame(f"training: losses {result[0]} become {result[1]} with the proposals")
