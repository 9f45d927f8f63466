"""the proposal's small changes -> rows: rollouts, horizon weights, mask, variance, transfers"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.active_dynamics.allocations import allocated
from benchmarks.harness import Contestant, race
from benchmarks.reference import active_dynamics as plain
from benchmarks.reference import active_dynamics_seed as seed
from benchmarks.reference.active_dynamics_rollout import RecentRollout, SeedRollout
from benchmarks.repeat import repeat
from benchmarks.table import NotTheSame, Row, Without
from quatrain.models.active_dynamics.seq_vae.encoder import to_variance
from quatrain.replay import windows
from quatrain.replay.windows import Entry, WindowRing

UNIT = "us/call"
LENGTH, STORED, ROWS = 20, 64, 30
CHANNELS, ACTION, D, DT = 50, 2, 2, 0.1
HORIZONS, DECAY = 5, 0.8
TIMES, P_MASK = 20, 0.1
BATCH = 64


def rows(rounds: int) -> list[Row]:
    """Returns all rows; transfers go to a GPU if there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    created = latest()
    refuse_another_window(created.before, created.after, created.ring)
    small = (weights_row(rounds), *mask_rows(rounds), variance_row(rounds), device_row(rounds))
    return [
        *rollout_rows(created, rounds),
        *memory_rows(created),
        *small,
        transfer_row(device, rounds),
    ]


# The latest transitions.


class Latest(NamedTuple):
    """Holds the same latest transitions in three containers, and the very last one."""

    before: RecentRollout
    after: SeedRollout
    ring: WindowRing
    transition: dict[str, Tensor]


def latest() -> Latest:
    before, after, ring = (
        RecentRollout(LENGTH),
        SeedRollout(LENGTH),
        windows.allocate(1, STORED, CHANNELS, ACTION),
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(2 * STORED):
        transition = transition_of(generator)
        for rollout in (before, after):
            rollout.add(transition)
        wrote(ring, transition)
    return Latest(before, after, ring, transition)


def rollout_rows(created: Latest, rounds: int) -> list[Row]:
    """Returns rows about a copy against a view, without and with a write before."""
    before, after, ring, transition = created
    many = windows.allocate(ROWS, STORED, CHANNELS, ACTION)
    copies = {
        "before": repeat(before.copy),
        "seed": repeat(after.copy),
        "ours": repeat(lambda: windows.last(ring, LENGTH)),
        "copied": repeat(lambda: [part.clone() for part in windows.last(ring, LENGTH)]),
    }
    writes = {
        "before": repeat(lambda: (before.add(transition), before.copy())),
        "seed": repeat(lambda: (after.add(transition), after.copy())),
        "one": repeat(lambda: (wrote(ring, transition), windows.last(ring, LENGTH))),
        "many": repeat(partial(wrote, many, transition), ROWS),
    }
    copied, written = race(copies, rounds), race(writes, rounds)
    copy = Without("the view: a copy of the project's window", copied["copied"])
    single = Without("the batch: one row", written["one"])
    row = partial(Row, unit=UNIT, before=written["before"], seed_way=written["seed"])
    return [
        Row(
            f"rollout copy, the last {LENGTH} transitions",
            UNIT,
            copied["ours"],
            copied["before"],
            copied["seed"],
            without=copy,
        ),
        row("  with a transition written before, 1 row", ours=written["one"]),
        row(f"  ours: {ROWS} rows at once, by row", ours=written["many"], without=single),
    ]


def memory_rows(created: Latest) -> list[Row]:
    """Returns rows about bytes that a copy and a write allocate.

    The proposal's pool should have avoided allocations in writes, but nothing is taken from it.
    """
    before, after, ring, transition = created
    copies = (before.copy, after.copy, lambda: windows.last(ring, LENGTH))
    writes = (
        lambda: before.add(transition),
        lambda: after.add(transition),
        lambda: wrote(ring, transition),
    )
    rows = []
    for name, claim, sides in (
        (
            f"rollout copy, the last {LENGTH} transitions: bytes; ours: of Python's views",
            "dynamics-clone",
            copies,
        ),
        (
            "transition written: bytes; seed's way: nobody takes from the pool",
            "dynamics-pool",
            writes,
        ),
    ):
        plain, proposed, ours = map(allocated, sides)
        rows.append(Row(name, "KiB", ours, plain, proposed, claims=(claim,)))
    return rows


def transition_of(generator: torch.Generator) -> dict[str, Tensor]:
    """Returns a transition with the original's columns."""
    sizes = {
        "obs": CHANNELS,
        "next_obs": CHANNELS,
        "action": ACTION,
        "model_state": D,
        "next_model_state": D,
    }
    created = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
    return created | {"reward": torch.zeros(())}


def wrote(ring: WindowRing, transition: dict[str, Tensor]) -> None:
    """Writes a transition into all rows of the project's ring."""
    rows = len(ring.actions)
    columns = (transition[name].expand(rows, -1) for name in ("next_obs", "action"))
    windows.write(ring, Entry(*columns, torch.zeros(rows, dtype=torch.bool)), LENGTH)


def refuse_another_window(before: RecentRollout, after: RecentRollout, ring: WindowRing) -> None:
    """Compares the latest transitions of all containers; the project's must be a view.

    Raises:
        NotTheSame: they do not, or it is a copy.
    """
    result, shared = windows.last(ring, LENGTH), ring.observations.untyped_storage().data_ptr()
    for rollout in (before, after):
        copied = rollout.copy().data
        same = torch.equal(copied["next_obs"], result.observations[0])
        if not same or not torch.equal(copied["action"], result.actions[0]):
            raise NotTheSame("rollout copy: the last transitions are others")
    if result.observations.untyped_storage().data_ptr() != shared:
        raise NotTheSame("rollout copy: the project's window is a copy")


# Weights, mask, device.


def weights_row(rounds: int) -> Row:
    """Returns the row of normalised horizon weights; ours are computed once."""
    cached, created = seed.KlWeights(), plain.horizon_weights(HORIZONS, DECAY)
    cached(HORIZONS, DECAY)
    if not torch.allclose(cached(HORIZONS, DECAY), created):
        raise NotTheSame("weights of horizons: the seed's are others at the second call, too")
    cache = {"weights": created}
    times = race(
        {
            "before": repeat(lambda: plain.horizon_weights(HORIZONS, DECAY)),
            "seed": repeat(lambda: cached(HORIZONS, DECAY)),
            "ours": repeat(lambda: cache["weights"]),
        },
        rounds,
    )
    made_anew = Without("what is kept: made anew", times["before"])
    return Row(
        "weights of horizons; seed's way: wrong at the first call",
        UNIT,
        times["ours"],
        times["before"],
        times["seed"],
        without=made_anew,
        claims=("dynamics-kl",),
    )


def mask_rows(rounds: int) -> list[Row]:
    """Returns rows about the mask: allocated bytes and time."""
    drawn, generator = seed.Mask(TIMES), torch.Generator().manual_seed(0)
    sides: dict[str, Callable[[], object]] = {
        "before": lambda: seed.mask_before(TIMES, P_MASK),
        "seed": lambda: drawn(P_MASK),
        "ours": lambda: torch.rand(TIMES, 1, generator=generator) >= P_MASK,
    }
    times = race({name: repeat(work) for name, work in sides.items()}, rounds)
    plain, proposed, ours = map(allocated, sides.values())
    name = "mask: bytes; seed's way: breaks two losses with one backward"
    return [
        Row(name, "KiB", ours, plain, proposed, claims=("dynamics-mask",)),
        Row("  the same in time", UNIT, times["ours"], times["before"], times["seed"]),
    ]


def variance_row(rounds: int) -> Row:
    """Returns the row of a step's variance; ours is computed in each call: it can be learned."""
    cached, raw = seed.CachedVariance(D), torch.full((D,), -3.0, requires_grad=True)
    ours = lambda: to_variance(raw) * DT  # noqa: E731
    if not torch.allclose(cached() * DT, ours()):
        raise NotTheSame("variance: the seed's is another before anything is learned, too")
    times = race(
        {
            "before": repeat(lambda: plain.Model.variance(raw) * DT),
            "seed": repeat(lambda: cached() * DT),
            "ours": repeat(ours),
        },
        rounds,
    )
    return Row(
        "variance of a step; seed's way: wrong, it cannot learn",
        UNIT,
        times["ours"],
        times["before"],
        times["seed"],
        claims=("dynamics-variance",),
    )


def device_row(rounds: int) -> Row:
    """Returns the row of the device check; ours is decided once before training."""
    checks = seed.DeviceChecks(torch.device("cpu"))
    times = race(
        {
            "before": repeat(checks.before),
            "seed": repeat(checks.seed),
            "ours": repeat(lambda: None),
        },
        rounds,
    )
    name = "device check; ours: an empty call"
    return Row(
        name, UNIT, times["ours"], times["before"], times["seed"], claims=("dynamics-device",)
    )


def transfer_row(device: torch.device, rounds: int) -> Row:
    """Returns the row of a batch's transfer; ours is selected from data on the device."""
    stored = torch.randn(STORED * BATCH, CHANNELS)
    there, index = stored.to(device), torch.randint(len(stored), (BATCH,), device=device)
    batch = stored[:BATCH].clone()
    out, moved = torch.empty(BATCH, CHANNELS, device=device), lambda: seed.moved(batch, device)
    sides: dict[str, Callable[[], object]] = {
        "before": lambda: batch.to(device),
        "seed": moved,
        "ours": lambda: there.index_select(0, index),
        "limit": lambda: torch.index_select(there, 0, index, out=out),
    }
    if not torch.equal(moved(), batch.to(device)):
        raise NotTheSame("transfer: another batch arrives")
    times = race({name: arriving(work, device) for name, work in sides.items()}, rounds)
    where = (
        "" if device.type == "cuda" else "; no CUDA device: on the CPU a copy that never happens"
    )
    name = (
        f"transfer, {BATCH} x {CHANNELS}; ours: picked on the device;"
        f" limit: into memory that is there{where}"
    )
    return Row(
        name,
        UNIT,
        times["ours"],
        times["before"],
        times["seed"],
        times["limit"],
        claims=("dynamics-transfer",),
    )


def arriving(work: Callable[[], object], device: torch.device) -> Contestant:
    """Repeats the work; a repetition ends when the device is done."""
    ours = repeat(work)

    def run() -> None:
        ours.run()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return Contestant(run, ours.units)
