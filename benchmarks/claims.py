"""claims of five proposals about the speed of other programs -> ratios that a measurement can check

Each proposal is about an open program that a model here reimplements. A claim quotes the
proposal's words and numbers;
`least` is the weakest reading as before / after: "50 % faster" needs 1.5, "50 % less" needs 2.
"""

from typing import NamedTuple


class Proposal(NamedTuple):
    """Holds the title of a document and the model that reimplements the program it is about."""

    title: str
    model: str


class Claim(NamedTuple):
    """Holds one item of a proposal. `least` is None if no number is promised; `no_row` says why
    nothing is measured.
    """

    proposal: str
    what: str
    promised: str
    least: float | None = None
    no_row: str = ""


PROPOSALS = {
    "allo": Proposal("Performance Optimization Proposal for exp_alcl/allo.py", "allo"),
    "replay": Proposal("Replay Buffer Vectorization: Implementation Summary", "allo"),
    "colony": Proposal(
        "Performance Optimizations Applied: delete ratio architecture", "actor_critic"
    ),
    "dynamics": Proposal("Performance Optimization Summary: active-dynamics", "active_dynamics"),
    "agents": Proposal("JAX Acceleration Opportunities for Sequential Mode: treasurehunt", "iqn"),
}

CLAIMS = {
    "allo-1": Claim(
        "allo", "vectorise the sampling of the replay buffer", "50-70 % faster sampling", 1.5
    ),
    "allo-2": Claim("allo", "one application of the encoder to all batches", "10-20 % faster", 1.1),
    "allo-3": Claim(
        "allo", "plots out of the training loop", "no pauses of 5-10 s every 1000 steps"
    ),
    "allo-4": Claim(
        "allo", "one gather of coordinates for all batches", "5-10 % faster data preparation", 1.05
    ),
    "allo-5": Claim("allo", "`@` in place of einsum", "2-5 % faster", 1.02),
    "allo-6": Claim("allo", "one transfer of all metrics", "minimal"),
    "allo-7": Claim("allo", "one identity matrix, products combined", "1-3 % faster", 1.01),
    "allo-8": Claim("allo", "jit helper functions inside the jitted step", "no number"),
    "allo-phase-1": Claim(
        "allo", "vectorised sampling and one encoder call together", "60-80 % faster", 1.6
    ),
    "allo-overall": Claim("allo", "all of it", "2-3x faster training", 2.0),
    "replay-1": Claim(
        "replay", "ends of episodes noted when an episode is added", "~5x per sample() call", 5.0
    ),
    "replay-2": Claim(
        "replay", "masks and a sort in place of the loop", "2-3 ms become 0.5-1 ms", 2.0
    ),
    "replay-memory": Claim("replay", "memory of the notes", "about 40 KB per 100 episodes"),
    "replay-overall": Claim("replay", "sampling of 20,000 steps", "100 s become 30 s", 3.3),
    "colony-1": Claim("colony", "argpartition for the leftmost cells", "2-3x", 2.0),
    "colony-2": Claim("colony", "a template of the reward dictionary", "1.05-1.1x", 1.05),
    "colony-3": Claim("colony", "entropy in closed form", "5-10x Monte Carlo", 5.0),
    "colony-4": Claim("colony", "advantages in preallocated tensors", "2-3x", 2.0),
    "colony-memory": Claim("colony", "less memory", "10-20 % fewer allocations", 1.1),
    "colony-overall": Claim("colony", "all four", "40-50 % faster overall", 1.4),
    "colony-amp": Claim(
        "colony", "mixed precision, not applied there", "30-50 % faster on GPUs", 1.3
    ),
    "colony-compile": Claim("colony", "torch.compile, not applied there", "20-30 % faster", 1.2),
    "colony-environments": Claim(
        "colony", "vectorised environments, not applied there", "10x throughput", 10.0
    ),
    "dynamics-transfer": Claim("dynamics", "transfers that do not wait", "25-40 % faster", 1.25),
    "dynamics-clone": Claim(
        "dynamics", "clone only where a gradient is wanted", "30-50 % less memory", 1.43
    ),
    "dynamics-pool": Claim("dynamics", "a pool of tensors", "80-90 % fewer allocations", 5.0),
    "dynamics-kl": Claim("dynamics", "weights of the KL terms kept", "60-80 % faster", 1.6),
    "dynamics-mask": Claim(
        "dynamics", "the mask drawn into one buffer", "40-60 % less memory", 1.67
    ),
    "dynamics-variance": Claim("dynamics", "the variance kept between calls", "no number"),
    "dynamics-encoder": Claim(
        "dynamics", "fewer calls of the encoder", "50-70 % faster agent step", 1.5
    ),
    "dynamics-device": Claim("dynamics", "the device's name compared once", "10-15 % faster", 1.1),
    "dynamics-naming": Claim(
        "dynamics",
        "`_config` in place of `_cfg`",
        "maintainability",
        no_row="a name has no speed; here one pydantic config serves all",
    ),
    "dynamics-memory": Claim("dynamics", "all of it", "20-40 % less memory", 1.25),
    "agents-train": Claim("agents", "forward and backward pass compiled", "2-5x training", 2.0),
    "agents-infer": Claim("agents", "inference compiled", "3-10x inference", 3.0),
    "agents-compile": Claim("agents", "what compiling costs", "about 100-200 ms once"),
    "agents-act-together": Claim("agents", "vmap of acting over agents", "2-4x", 2.0),
    "agents-observe-together": Claim(
        "agents", "vmap of observations over agents", "no number of its own"
    ),
    "agents-train-together": Claim("agents", "vmap of training over agents", "2-4x", 2.0),
    "agents-sample": Claim("agents", "sampling and indexing of the buffer compiled", "2-3x", 2.0),
    "agents-device": Claim("agents", "the buffer on the device", "no number of its own"),
    "agents-loss": Claim("agents", "loss compiled", "1.5-2x", 1.5),
    "agents-stack": Claim("agents", "stacking of frames compiled", "1.5-2x", 1.5),
    "agents-observe": Claim("agents", "observation compiled", "1.2-1.5x", 1.2),
    "agents-overall": Claim("agents", "all of it", "4-12x", 4.0),
    "agents-processes": Claim(
        "agents",
        "in place of multiprocessing",
        "better for up to ten agents",
        no_row="no side of this project runs an agent in a process of its own",
    ),
}
"""By the id that rows name: the proposal, and its own number where it has one."""
