"""rows about the proposal's small changes: latest transitions, weights of horizons, mask, variance, transfers."""

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
    """On the device of torch's default, but for transfers."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    made = latest()
    refuse_another_window(made.before, made.after, made.ring)
    small = (weights_row(rounds), *mask_rows(rounds), variance_row(rounds), device_row(rounds))
    return [*rollout_rows(made, rounds), *memory_rows(made), *small, transfer_row(device, rounds)]


# The latest transitions.


class Latest(NamedTuple):
    """The same last transitions three times, and the last of all."""

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


def rollout_rows(made: Latest, rounds: int) -> list[Row]:
    """A copy of them against a view; then with the transition that comes before."""
    before, after, ring, transition = made
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
    one = Without("the batch: one row", written["one"])
    row = partial(Row, unit=UNIT, before=written["before"], seed_way=written["seed"])
    return [
        Row(
            f"rollout copy, the last {LENGTH} transitions", UNIT, copied["ours"], copied["before"], copied["seed"],
            without=copy,
        ),
        row("  with a transition written before, 1 row", ours=written["one"]),
        row(f"  ours: {ROWS} rows at once, by row", ours=written["many"], without=one),
    ]  # fmt: skip


def memory_rows(made: Latest) -> list[Row]:
    """Bytes that a copy, and a write, ask for. The pool was to make writes ask for none; nothing is taken from it."""
    before, after, ring, transition = made
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
    """As the original keeps it: observations before and after, states of the model, reward."""
    sizes = {
        "obs": CHANNELS,
        "next_obs": CHANNELS,
        "action": ACTION,
        "model_state": D,
        "next_model_state": D,
    }
    made = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
    return made | {"reward": torch.zeros(())}


def wrote(ring: WindowRing, transition: dict[str, Tensor]) -> None:
    """Into the project's ring, in all rows."""
    rows = len(ring.actions)
    columns = (transition[name].expand(rows, -1) for name in ("next_obs", "action"))
    windows.write(ring, Entry(*columns, torch.zeros(rows, dtype=torch.bool)), LENGTH)


def refuse_another_window(before: RecentRollout, after: RecentRollout, ring: WindowRing) -> None:
    """All must hold the same transitions, and the project's be a view.

    Raises:
        NotTheSame: they do not, or it is a copy.
    """
    found, shared = windows.last(ring, LENGTH), ring.observations.untyped_storage().data_ptr()
    for rollout in (before, after):
        copied = rollout.copy().data
        same = torch.equal(copied["next_obs"], found.observations[0])
        if not same or not torch.equal(copied["action"], found.actions[0]):
            raise NotTheSame("rollout copy: the last transitions are others")
    if found.observations.untyped_storage().data_ptr() != shared:
        raise NotTheSame("rollout copy: the project's window is a copy")


# Weights, mask, device.


def weights_row(rounds: int) -> Row:
    """Normalised weights of horizons; ours are made once, of the config."""
    cached, made = seed.KlWeights(), plain.horizon_weights(HORIZONS, DECAY)
    cached(HORIZONS, DECAY)
    if not torch.allclose(cached(HORIZONS, DECAY), made):
        raise NotTheSame("weights of horizons: the seed's are others at the second call, too")
    held = {"weights": made}
    times = race(
        {
            "before": repeat(lambda: plain.horizon_weights(HORIZONS, DECAY)),
            "seed": repeat(lambda: cached(HORIZONS, DECAY)),
            "ours": repeat(lambda: held["weights"]),
        },
        rounds,
    )
    made_anew = Without("what is kept: made anew", times["before"])
    return Row(
        "weights of horizons; seed's way: wrong at the first call", UNIT,
        times["ours"], times["before"], times["seed"], without=made_anew, claims=("dynamics-kl",),
    )  # fmt: skip


def mask_rows(rounds: int) -> list[Row]:
    """Which states of a window are kept: bytes that are asked for, and time."""
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
    """Of a step, from its parameter; ours is worked out whenever it is asked for, so that it can be learned."""
    cached, raw = seed.CachedVariance(D), torch.full((D,), -3.0, requires_grad=True)
    own = lambda: to_variance(raw) * DT  # noqa: E731
    if not torch.allclose(cached() * DT, own()):
        raise NotTheSame("variance: the seed's is another before anything is learned, too")
    times = race(
        {
            "before": repeat(lambda: plain.Model.variance(raw) * DT),
            "seed": repeat(lambda: cached() * DT),
            "ours": repeat(own),
        },
        rounds,
    )
    return Row(
        "variance of a step; seed's way: wrong, it cannot learn", UNIT,
        times["ours"], times["before"], times["seed"], claims=("dynamics-variance",),
    )  # fmt: skip


def device_row(rounds: int) -> Row:
    """Whether the device is CUDA; ours is decided before there are steps."""
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
    """A batch to the device, from memory that is not pinned; ours picks it from what is there."""
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
    name = f"transfer, {BATCH} x {CHANNELS}; ours: picked on the device; limit: into memory that is there{where}"
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
    """Many times over; a turn ends when all has arrived."""
    own = repeat(work)

    def run() -> None:
        own.run()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return Contestant(run, own.units)
