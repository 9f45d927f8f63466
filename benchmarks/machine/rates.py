"""this machine -> its peak rates: the limits that rows of other benchmarks are compared with"""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.harness import Contestant, Measured, race
from benchmarks.table import NotTheSame, Row
from benchmarks.torch_threads import threads

SEED = 0
COPIED = 256 * 2**20
"""Bytes; more than any cache holds."""
LINES, LINE = 65_536, 4096
"""Rows of 4 KB to gather from, and the bytes of one."""
SIDE = 1024
"""Of the matrices of sgemm."""
SMALL = 256
CALLS = 1000
WAITING = """
import sys, time, torch
x = torch.rand({side}, {side})
for _ in range(5): x @ x
taken = []
for _ in range(20):
    begin = time.perf_counter(); x @ x; taken.append(time.perf_counter() - begin)
print(sorted(taken)[10])
"""
"""The median of single calls: one that meets a thread which spins in vain takes fifty times as
long.
"""


class Rate(NamedTuple):
    """Holds work, its repetitions per timing, and what one call moves or computes (in giga: bytes
    or FLOP).
    """

    run: Contestant
    giga: float
    unit: str


def rate_rows(rounds: int) -> tuple[list[Row], list[str]]:
    """Rows of the machine's limits, and as notes what they are in GB/s and GFLOP/s."""
    rates = moving() | multiplying()
    times = race({name: rate.run for name, rate in rates.items()}, rounds)
    rows = [
        Row(name, "ms" if rate.giga > 0.01 else "us/call", times[name])
        for name, rate in rates.items()
    ]
    shown = (
        f"{name}: {rate.giga / times[name].median:.3g} {rate.unit}" for name, rate in rates.items()
    )
    return rows, ["; ".join(shown)]


def moving() -> dict[str, Rate]:
    """Returns rates of copying, reading and gathering; arrays are random, since untouched zero
    pages share one page.
    """
    rng = np.random.default_rng(SEED)
    source = rng.random(COPIED // 8)
    target = np.copy(source)
    table = rng.random((LINES, LINE // 8))
    lines, gathered = rng.integers(0, LINES, 8192), np.empty((8192, LINE // 8))
    return {
        "copy 256 MB": Rate(
            Contestant(lambda: np.copyto(target, source)), 2 * COPIED / 1e9, "GB/s"
        ),
        "read 256 MB": Rate(Contestant(source.sum), COPIED / 1e9, "GB/s"),
        "gather 8192 rows of 4 KB": Rate(
            Contestant(lambda: table.take(lines, axis=0, out=gathered, mode="clip")),
            gathered.nbytes / 1e9,
            "GB/s",
        ),
    }


def multiplying() -> dict[str, Rate]:
    """Returns rates of float32 matrix products: torch with one and two threads, XLA with those of
    params.yaml.
    """
    left, right = (
        np.random.default_rng(SEED + i).random((SIDE, SIDE), np.float32) for i in range(2)
    )
    torch_left, torch_right = torch.from_numpy(left), torch.from_numpy(right)
    jax_left, jax_right = jnp.asarray(left), jnp.asarray(right)
    product = jax.jit(jnp.matmul)
    if not np.allclose(product(jax_left, jax_right), torch_left @ torch_right, rtol=1e-4):
        raise NotTheSame("sgemm: torch and XLA do not multiply alike")

    def by_torch(count: int) -> torch.Tensor:
        with threads(count):
            return torch_left @ torch_right

    flop = 2 * SIDE**3 / 1e9
    name = f"sgemm {SIDE}"
    return {
        f"{name}, torch, 1 thread": Rate(Contestant(lambda: by_torch(1)), flop, "GFLOP/s"),
        f"{name}, torch, 2 threads": Rate(Contestant(lambda: by_torch(2)), flop, "GFLOP/s"),
        f"{name}, XLA": Rate(
            Contestant(lambda: product(jax_left, jax_right).block_until_ready()), flop, "GFLOP/s"
        ),
    }


def small_rows(rounds: int) -> list[Row]:
    """Measures the overhead of a call: numpy, an empty program, a program with five outputs."""
    rng = np.random.default_rng(SEED)
    table, rows, out = (
        rng.random((100_000, 2), np.float32),
        rng.integers(0, 100_000, 256),
        np.empty((256, 2), np.float32),
    )
    if not np.array_equal(table.take(rows, axis=0, out=out, mode="clip"), table[rows]):
        raise NotTheSame("np.take and fancy indexing do not give the same rows")
    columns, key = (
        tuple(jnp.asarray(rng.random(100_000, np.float32)) for _ in range(5)),
        jax.random.key(SEED),
    )
    nothing = jax.jit(lambda x: x)
    draw = jax.jit(
        lambda key, columns: [
            column[jax.random.randint(key, (256,), 0, 100_000)] for column in columns
        ]
    )

    def repeated(call: Callable[[], object]) -> Contestant:
        return Contestant(lambda: [call() for _ in range(CALLS)], CALLS)

    times = race(
        {
            "take": repeated(lambda: table.take(rows, axis=0, out=out, mode="clip")),
            "fancy": repeated(lambda: table[rows]),
            "empty": repeated(lambda: nothing(key).block_until_ready()),
            "sample": repeated(lambda: jax.block_until_ready(draw(key, columns))),
        },
        rounds,
    )
    return [
        Row(
            "256 rows of 8 bytes, np.take",
            "us/call",
            times["take"],
            times["fancy"],
            against="fancy indexing",
        ),
        Row("an empty jitted call", "us/call", times["empty"]),
        Row("a jitted sample of five columns", "us/call", times["sample"]),
    ]


def waiting_row(rounds: int) -> Row:
    """Compares a torch matmul with sleeping idle threads and with the default of spinning ones."""
    used: dict[str, list[float]] = {"PASSIVE": [], "ACTIVE": []}
    for _ in range(rounds):
        for policy, seconds in used.items():
            inputs = os.environ | {"OMP_WAIT_POLICY": policy, "OMP_NUM_THREADS": "2"}
            script = WAITING.format(side=SMALL)
            done = subprocess.run(
                [sys.executable, "-c", script],
                env=inputs,
                capture_output=True,
                text=True,
                check=True,
            )
            seconds.append(float(done.stdout))
    passive, spinning = (Measured(np.array(used[policy])) for policy in used)
    return Row(
        f"torch matmul {SMALL}^3, idle threads sleep",
        "us/call",
        passive,
        spinning,
        against="spinning threads",
    )
