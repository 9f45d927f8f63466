"""the proposal's small changes -> rows: times of weights, variance, device checks, transfers"""

import torch

from benchmarks.harness import Row
from benchmarks.reference import active_dynamics as plain
from benchmarks.reference import active_dynamics_seed as seed
from benchmarks.torch_rows import Work, measured_row
from quatrain.models.active_dynamics.seq_vae.encoder import to_variance

D, DT = 2, 0.1
HORIZONS, DECAY = 5, 0.8
STORED, BATCH, CHANNELS = 4096, 64, 50
ALL = ("before", "seed_way", "ours")


def rows(rounds: int) -> list[Row]:
    """Measures all items; transfers go to the device of params.yaml."""
    device, cpu = torch.get_default_device(), torch.device("cpu")
    is_cuda = "cuda" in str(cpu)
    checks = {"before": lambda: "cuda" in str(cpu), "seed_way": lambda: is_cuda}
    no_device = "; no CUDA device: on the CPU a copy that never happens"
    where = "" if device.type == "cuda" else no_device
    transfer = f"transfer, {BATCH} x {CHANNELS}; ours: picked on the device"
    transfer = f"{transfer}; limit: into memory that is there{where}"
    items = {
        "weights of horizons; seed's way: wrong at the first call": ("kl", horizon_weights()),
        "variance of a step; seed's way: wrong, it cannot learn": ("variance", variances()),
        "device check; ours: an empty call": ("device", checks | {"ours": lambda: None}),
        transfer: ("transfer", transfers(device)),
    }
    result = []
    for name, (claim, works) in items.items():
        alike = ALL[:2] if claim == "device" else ALL
        claims = (f"dynamics-{claim}",)
        result.append(measured_row("us/call", rounds, name, works, alike=alike, claims=claims))
    return result


def horizon_weights() -> dict[str, Work]:
    """Returns the normalisation of horizon weights; ours are computed once."""
    cached, created = seed.KlWeights(), {"weights": plain.horizon_weights(HORIZONS, DECAY)}
    cached(HORIZONS, DECAY)
    return {
        "before": lambda: plain.horizon_weights(HORIZONS, DECAY),
        "seed_way": lambda: cached(HORIZONS, DECAY),
        "ours": lambda: created["weights"],
    }


def variances() -> dict[str, Work]:
    """Returns the variance of a step; ours is computed in each call, so that it can be learned."""
    cached, raw = seed.CachedVariance(D), torch.full((D,), -3.0, requires_grad=True)
    return {
        "before": lambda: plain.Model.variance(raw) * DT,
        "seed_way": lambda: cached() * DT,
        "ours": lambda: to_variance(raw) * DT,
    }


def transfers(device: torch.device) -> dict[str, Work]:
    """Returns the transfer of a batch; ours is selected from data on the device. The proposal's
    does not wait, although the memory is not pinned.
    """
    stored = torch.randn(STORED, CHANNELS)
    batch, there = stored[:BATCH].clone(), stored.to(device)
    index, out = torch.arange(BATCH, device=device), torch.empty_like(batch, device=device)
    works = {
        "before": lambda: batch.to(device),
        "seed_way": lambda: batch.to(device, non_blocking="cuda" in str(device)),
        "ours": lambda: there.index_select(0, index),
        "limit": lambda: torch.index_select(there, 0, index, out=out),
    }
    return works if device.type == "cpu" else {side: arriving(works[side]) for side in works}


def arriving(work: Work) -> Work:
    """Returns work that ends when the GPU is done."""

    def run() -> torch.Tensor:
        result = work()
        torch.cuda.synchronize()
        return result

    return run
