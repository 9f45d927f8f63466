"""rows about the seed's small changes: the latest transitions, weights of horizons, mask, device checks, transfers."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.harness import Contestant, Times, race
from benchmarks.reference import active_dynamics as plain
from benchmarks.reference import active_dynamics_seed as seed
from benchmarks.reference.active_dynamics_rollout import RecentRollout, SeedRollout
from benchmarks.table import NotTheSame, Row
from quatrain.replay import windows
from quatrain.replay.windows import Entry, Ring

UNIT = "us/call"
REPEATS = 200
LENGTH, STORED, ROWS = 20, 64, 30
CHANNELS, ACTION, D = 50, 2, 2
HORIZONS, DECAY = 5, 0.8
TIMES, P_MASK = 20, 0.1
BATCH = 64


def rows(rounds: int) -> list[Row]:
    """On the device of torch's default, but for transfers."""
    found = [*rollout_rows(rounds), weights_row(rounds), mask_row(rounds), device_row(rounds)]
    return found + (transfer_rows(torch.device("cuda"), rounds) if torch.cuda.is_available() else [])


def transfer_note() -> list[str]:
    """Where there is nothing to transfer to."""
    said = "transfer of a batch (the seed claims 25-40 % less): skipped: no CUDA device"
    return [] if torch.cuda.is_available() else [said]


def repeated(work: Callable[[], object], units: float = 1.0) -> Contestant:
    """Short work, many times over; `units`: of what a row counts in one of them."""

    def run() -> None:
        for _ in range(REPEATS):
            work()

    return Contestant(run, REPEATS * units)


# The latest transitions.


def rollout_rows(rounds: int) -> list[Row]:
    """A copy of them against a view; then with the transition that comes before."""
    before, after, ring = RecentRollout(LENGTH), SeedRollout(LENGTH), windows.allocate(1, STORED, CHANNELS, ACTION)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2 * STORED):
        transition = transition_of(generator)
        for rollout in (before, after):
            rollout.add(transition)
        wrote(ring, transition)
    refuse_another_window(before, after, ring)
    copies = {
        "before": repeated(before.copy),
        "seed": repeated(after.copy),
        "ours": repeated(lambda: windows.last(ring, LENGTH)),
    }
    many = windows.allocate(ROWS, STORED, CHANNELS, ACTION)
    writes = {
        "before": repeated(lambda: (before.add(transition), before.copy())),
        "seed": repeated(lambda: (after.add(transition), after.copy())),
        "one": repeated(lambda: (wrote(ring, transition), windows.last(ring, LENGTH))),
        "many": repeated(partial(wrote, many, transition), ROWS),
    }
    copied, written = race(copies, rounds), race(writes, rounds)
    row = partial(_rollout_row, before=written["before"], seed_way=written["seed"])
    return [
        _rollout_row(f"rollout copy, the last {LENGTH} transitions", copied["ours"], copied["before"], copied["seed"]),
        row("  with a transition written before, 1 row", written["one"]),
        row(f"  ours: {ROWS} rows at once, by row", written["many"]),
    ]


def _rollout_row(name: str, ours: Times, before: Times, seed_way: Times) -> Row:
    return Row(name, "003 conditional clone", "30-50 % less memory", UNIT, ours, before, seed_way)


def transition_of(generator: torch.Generator) -> dict[str, Tensor]:
    """As the original keeps it: observations before and after, states of the model, reward."""
    sizes = {"obs": CHANNELS, "next_obs": CHANNELS, "action": ACTION, "model_state": D, "next_model_state": D}
    made = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
    return made | {"reward": torch.zeros(())}


def wrote(ring: Ring, transition: dict[str, Tensor]) -> None:
    """Into the project's ring, in all rows."""
    rows = len(ring.actions)
    columns = (transition[name].expand(rows, -1) for name in ("next_obs", "action"))
    windows.write(ring, Entry(*columns, torch.zeros(rows, dtype=torch.bool)), LENGTH)


def refuse_another_window(before: RecentRollout, after: RecentRollout, ring: Ring) -> None:
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
            "before": repeated(lambda: plain.horizon_weights(HORIZONS, DECAY)),
            "seed": repeated(lambda: cached(HORIZONS, DECAY)),
            "ours": repeated(lambda: held["weights"]),
        },
        rounds,
    )
    name = "weights of horizons; seed's way: wrong at the first call"
    return Row(name, "003 cached KL weights", "60-80 % less", UNIT, times["ours"], times["before"], times["seed"])


def mask_row(rounds: int) -> Row:
    """Which states of a window are kept."""
    drawn, generator = seed.Mask(TIMES), torch.Generator().manual_seed(0)
    times = race(
        {
            "before": repeated(lambda: seed.mask_before(TIMES, P_MASK)),
            "seed": repeated(lambda: drawn(P_MASK)),
            "ours": repeated(lambda: torch.rand(TIMES, 1, generator=generator) >= P_MASK),
        },
        rounds,
    )
    name = "mask; seed's way: breaks two losses with one backward"
    return Row(name, "003 in-place mask", "40-60 % less memory", UNIT, times["ours"], times["before"], times["seed"])


def device_row(rounds: int) -> Row:
    """Whether the device is CUDA; ours is decided before there are steps."""
    checks = seed.DeviceChecks(torch.device("cpu"))
    times = race(
        {"before": repeated(checks.before), "seed": repeated(checks.seed), "ours": repeated(lambda: None)}, rounds
    )
    name = "device check; ours: an empty call"
    return Row(name, "003 cached device checks", "10-15 % less", UNIT, times["ours"], times["before"], times["seed"])


def transfer_rows(device: torch.device, rounds: int) -> list[Row]:
    """A batch to the device, from memory that is not pinned; ours picks it from what is there."""
    stored = torch.randn(STORED * BATCH, CHANNELS)
    there, index = stored.to(device), torch.randint(len(stored), (BATCH,), device=device)
    batch = stored[:BATCH].clone()

    def done(work: Callable[[], object]) -> Contestant:
        def run() -> None:
            for _ in range(REPEATS):
                work()
            if device.type == "cuda":
                torch.cuda.synchronize()

        return Contestant(run, REPEATS)

    times = race(
        {
            "before": done(lambda: batch.to(device)),
            "seed": done(lambda: seed.moved(batch, device)),
            "ours": done(lambda: there.index_select(0, index)),
        },
        rounds,
    )
    name = f"transfer, {BATCH} x {CHANNELS}; ours: picked on the device"
    return [Row(name, "003 non_blocking", "25-40 % less", UNIT, times["ours"], times["before"], times["seed"])]
