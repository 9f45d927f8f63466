"""Environments of users: steps, ends of episodes, restored states, and what is refused."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import psutil
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from pydantic import ValidationError

from quatrain.envs.host.config import HostEnv
from quatrain.envs.host.envs import HostEnvs, play
from quatrain.envs.host.spaces import describe, draw_actions, to_action
from quatrain.errors import DataError
from tests.pipeline.fixture_types import Patch

HERE = __name__


def is_worker() -> bool:
    return "quatrain.envs.host.worker" in " ".join(sys.orig_argv)


class Counter(gymnasium.Env):
    """Counts steps from a number that the seed draws; ends at `limit`."""

    observation_space = Box(-100, 100, (2,), np.float32)
    action_space: gymnasium.Space = Discrete(3, start=1)

    def __init__(self, limit: int = 5, bad_step: int = -1) -> None:
        self.limit = limit
        self.bad_step = bad_step

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        self.steps = 0
        self.offset = float(self.np_random.random())
        return self._observed(0), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.steps += 1
        obs = self._observed(float(np.sum(action)))
        if self.steps == self.bad_step:
            obs = obs * np.nan
        return obs, float(self.steps), self.steps == self.limit, False, {}

    def _observed(self, action: float) -> np.ndarray:
        return np.array([self.steps + self.offset, action], np.float32)


class Untyped(Counter):
    """Returns what is no reward, or no bool."""

    def __init__(self, **returned: Any) -> None:
        super().__init__()
        self.returned = returned

    def step(self, action: Any) -> Any:
        obs, *values, info = super().step(action)
        names = ("reward", "terminated", "truncated")
        ends = (self.returned.get(name, v) for name, v in zip(names, values, strict=True))
        return obs, *ends, info


class Boxed(Counter):
    """Takes actions of a box."""

    def __init__(self, low: float = -np.inf, high: float = np.inf, dtype: str = "float32") -> None:
        super().__init__()
        self.action_space = Box(low, high, (1,), np.dtype(dtype).type)


class Spaceless(gymnasium.Env):
    """Has no spaces."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


ERRORS = {"exit": SystemExit(0), "mute": Mute(), "stop": KeyboardInterrupt()}


class Faulty(Counter):
    """Raises one of ERRORS in one of its methods."""

    def __init__(self, method: str, error: str) -> None:
        super().__init__()

        def fail(*_: Any, **__: Any) -> Any:
            raise ERRORS[error]

        setattr(self, method, fail)
        if method == "__init__":
            fail()


class Later(Counter):
    """Raises one of ERRORS in a process beside that of the tests."""

    def __init__(self, error: str) -> None:
        super().__init__()
        self.error = error

    def step(self, action: Any) -> Any:
        if is_worker():
            raise ERRORS[self.error]
        return super().step(action)


class Graceless(Counter):
    """Leaves torch without gradients, with another default device and dtype."""

    def __init__(self) -> None:
        super().__init__()
        torch.set_default_device("meta")

    def reset(self, **kwargs: Any) -> Any:
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        return super().reset(**kwargs)


class Unseeded(Counter):
    """Ends after another number of steps each time."""

    episodes = 0

    def reset(self, **kwargs: Any) -> Any:
        Unseeded.episodes += 1
        self.limit = 2 + 3 * (Unseeded.episodes % 2)
        return super().reset(**kwargs)


class Global(Counter):
    """Adds a number of Python's global generator to the observations of some steps."""

    begun = 0

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def reset(self, **kwargs: Any) -> Any:
        self.begun += 1
        return super().reset(**kwargs)

    def _observed(self, action: float) -> np.ndarray:
        first = self.steps == 0
        drawn = {"start": first, "steps": not first, "later start": first and self.begun > 2}
        return super()._observed(action) + drawn[self.where] * random.random()


class Pair:
    """Holds two agents that act at once; agent b may leave early."""

    possible_agents: ClassVar[list[str]] = ["a", "b"]

    def __init__(self, leaves: int = -1) -> None:
        self.leaves = leaves

    def reset(self, seed: int | None = None) -> Any:
        self.agents = list(self.possible_agents)
        self.random = np.random.default_rng(seed)
        self.steps = 0
        return {agent: int(self.random.integers(3)) for agent in self.agents}, {}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        flags = dict.fromkeys(self.agents, False)
        ended = flags | ({"b": True} if self.steps == self.leaves else {})
        return dict(actions), {"a": 1.0, "b": -1.0}, ended, flags, {}

    def observation_space(self, _agent: str) -> Any:
        return Discrete(3)

    def action_space(self, _agent: str) -> Any:
        return Discrete(3)

    def close(self) -> None: ...


class NoAgents(Pair):
    possible_agents: ClassVar[list[str]] = []


class Silent(Pair):
    """Ends for all agents together, without their observations."""

    def step(self, actions: Any) -> Any:
        _, rewards, _, truncated, infos = super().step(actions)
        return {}, rewards, dict.fromkeys(self.agents, True), truncated, infos


class Old(Counter):
    """Has the step of the API before Gymnasium; shows "obs": reset, too."""

    def __init__(self, shows: str = "both", **others: Any) -> None:
        super().__init__(**others)
        self.shows = shows

    def reset(self, **arguments: Any) -> Any:
        obs, info = super().reset(**arguments)
        return obs if self.shows == "obs" else (obs, info)

    def step(self, action: Any) -> Any:
        obs, reward, has_ended, _, info = super().step(action)
        return obs, reward, has_ended, info


class Unseeding(Old):
    def reset(self) -> Any:
        return super().reset()


class OldPair(Pair):
    def reset(self, seed: int | None = None) -> Any:
        return super().reset(seed)[0]


class Apart(Pair):
    """Terminates for a in the step that truncates b."""

    def step(self, actions: Any) -> Any:
        observed, rewards, _, _, infos = super().step(actions)
        return observed, rewards, {"a": True, "b": False}, {"a": False, "b": True}, infos


class InTurns(Pair):
    def agent_iter(self) -> Any: ...


def host_env(name: str, kind: str = "gymnasium", steps: int | None = 7, **kwargs: Any) -> HostEnv:
    made_by = {"kind": kind, "id": None, "import": f"{HERE}:{name}", "kwargs": kwargs}
    return HostEnv.model_validate(
        made_by | {"max_episode_steps": steps, "wrappers": [], "vectorization": "sync"}
    )


def gymnasium_env(import_: str | None, env_id: str | None = None) -> HostEnv:
    keys = host_env("Counter").model_dump(by_alias=True)
    return HostEnv.model_validate(keys | {"import": import_, "id": env_id})


def pair(name: str, **kwargs: Any) -> HostEnv:
    return host_env(name, kind="pettingzoo", **kwargs)


def alone(config: HostEnv) -> HostEnvs:
    return HostEnvs(config, num_envs=1, seed=0)


def step(envs: HostEnvs, times: int = 1) -> None:
    for _ in range(times):
        envs.step(np.zeros((1, len(envs.interface.agents)), int))


def live(config: HostEnv) -> None:
    with closing(alone(config)) as envs:
        step(envs, 2)


def test_an_episode_ends_with_its_own_last_observation_and_the_next_one_begins():
    envs = HostEnvs(host_env("Counter", limit=3), num_envs=2, seed=4)
    turns = [envs.step(np.array([[0], [2]])) for _ in range(3)]
    assert [turn.terminated.tolist() for turn in turns] == [[False] * 2, [False] * 2, [True] * 2]
    assert not turns[-1].truncated.any()
    assert np.floor(turns[-1].next_obs[:, 0, 0]).tolist() == [3, 3]
    assert np.floor(envs.obs[:, 0, 0]).tolist() == [0, 0]
    assert turns[0].next_obs[:, 0, 1].tolist() == [1, 3]  # Discrete(3, start=1)
    first, second = turns[0].obs[:, 0, 0]
    assert first != second != envs.obs[1, 0, 0]


gymnasium.register("quatrain-tests/Capped-v0", f"{HERE}:Counter", max_episode_steps=4)
gymnasium.register("quatrain-tests/Endless-v0", f"{HERE}:Counter")
gymnasium.register("quatrain-tests/Old-v0", f"{HERE}:Old")
gymnasium.register("quatrain-tests/Long-v0", f"{HERE}:Counter", max_episode_steps=10**6)


def registered(name: str, steps: int | None) -> HostEnv:
    config = host_env("Counter", steps=steps, limit=99).model_dump()
    return HostEnv.model_validate(config | {"id": f"quatrain-tests/{name}-v0", "import": None})


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(0, 3, np.int64), (-2, 2, np.int8), (254, 255, np.uint8), (0, 1, np.bool_)],
)
def test_uniform_actions_are_each_integer_of_a_box_equally_often(low: int, high: int, dtype: Any):
    box = Box(low, high, (1,), dtype)
    interface = describe({"agent": (Discrete(2), box)}, 1)
    drawn = draw_actions(interface, np.random.default_rng(0), (20_000, 1))
    played = np.array([to_action(box, action) for action in drawn[:, 0]])
    assert played.dtype == box.dtype
    numbers, counts = np.unique(played, return_counts=True)
    assert numbers.tolist() == list(map(dtype, range(low, high + 1)))
    np.testing.assert_allclose(counts / len(played), 1 / len(numbers), atol=0.02)
    ends = [to_action(box, np.float32([end])) for end in np.ravel(interface.action_range)]
    assert np.ravel(ends).tolist() == [low, high]


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        (host_env("Counter", steps=2, limit=9), 2),
        (registered("Capped", None), 4),
        (registered("Capped", 6), 6),
        (registered("Capped", 3), 3),
        (registered("Endless", 7), 7),
        (registered("Long", 7), 7),
    ],
)
def test_an_episode_is_truncated_after_max_episode_steps_or_the_registered_limit(
    config: HostEnv, steps: int
):
    envs = alone(config)
    assert envs.interface.max_episode_steps == steps
    turns = [envs.step(np.zeros((1, 1), int)) for _ in range(steps)]
    assert [turn.truncated.item() for turn in turns] == [False] * (steps - 1) + [True]
    assert not turns[-1].terminated.item()


def test_a_restored_state_goes_on_with_the_same_bits():
    actions = np.random.default_rng(3).uniform(-1, 1, (12, 3, 1, 1)).astype(np.float32)
    envs, restored = (HostEnvs(host_env("Boxed", low=-1, high=1), 3, seed=9) for _ in range(2))
    for action in actions[:6]:
        envs.step(action)
    states = envs.states
    expected = [envs.step(action) for action in actions[6:]]
    restored.restore(states)
    for action, turn in zip(actions[6:], expected, strict=True):
        for value, expected_value in zip(restored.step(action), turn, strict=True):
            np.testing.assert_array_equal(value, expected_value)


class Slow(Counter):
    """Sleeps in each step; a worker ends its process in the step `dies`."""

    def __init__(self, seconds: float = 0.0, dies: int = -1) -> None:
        super().__init__()
        self.seconds, self.dies = seconds, dies

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        if self.steps + 1 == self.dies and is_worker():
            os._exit(7)
        return super().step(action)


class Meeting(Counter):
    """Ends a step in a worker when three of them have begun theirs."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = Path(place)

    def step(self, action: Any) -> Any:
        if is_worker():
            (self.place / str(os.getpid())).touch()
            ends = time.monotonic() + 60
            while len([*self.place.iterdir()]) < 3:
                assert time.monotonic() < ends, "the others wait for this one"
                time.sleep(0.01)
        return super().step(action)


class Forking(Slow):
    """Has a forked process in a worker, which holds what the worker has open."""

    def __init__(self, dies: int = -1) -> None:
        super().__init__(dies=dies)
        if is_worker():
            multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()


def in_workers(config: HostEnv) -> HostEnv:
    return config.model_copy(update={"vectorization": "async"})


@pytest.mark.parametrize("config", [host_env("Counter", limit=3), pair("Pair")])
def test_environments_in_processes_of_their_own_show_the_same_bits_and_are_restored(
    config: HostEnv,
):
    size = len(alone(config).interface.agents)
    actions = np.random.default_rng(3).integers(3, size=(9, 3, size))
    with (
        closing(HostEnvs(config, 3, seed=9)) as envs,
        closing(HostEnvs(in_workers(config), 3, seed=9)) as workers,
        closing(HostEnvs(in_workers(config), 3, seed=9)) as restored,
    ):
        for number, action in enumerate(actions):
            active = np.arange(3) != number
            turns = [each.step(action, active) for each in (envs, workers)]
            np.testing.assert_equal(*(turn._asdict() for turn in turns))
        restored.restore(workers.states)
        turns = [each.step(actions[0]) for each in (envs, workers, restored)]
        np.testing.assert_equal(turns[1]._asdict(), turns[0]._asdict())
        np.testing.assert_equal(turns[2]._asdict(), turns[0]._asdict())


def test_environments_in_processes_step_at_once(tmp_path: Path):
    with closing(HostEnvs(in_workers(host_env("Meeting", place=str(tmp_path))), 4, seed=0)) as envs:
        envs.step(np.zeros((4, 1), int))
    assert len([*tmp_path.iterdir()]) == 3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            host_env("Slow", dies=2),
            r"\(number 1, episode 0, step 2\): its process ended with exit c",
        ),
        (
            host_env("Forking", dies=2),
            r"\(number 1, episode 0, step 2\): its process ended with exit c",
        ),
        (
            host_env("Faulty", method="step", error="exit"),
            r"\(number 0, .*, step 1\): SystemExit: 0",
        ),
        (
            host_env("Later", error="exit"),
            r"\(number 1, episode 0, step 1\): SystemExit: 0 \(test_envs",
        ),
    ],
)
def test_what_happens_in_a_process_is_one_line_and_leaves_none_behind(
    config: HostEnv, message: str
):
    envs = HostEnvs(in_workers(config), 3, seed=0)
    processes = [worker._process for worker in envs._envs[1:]]
    forked = [child for each in processes for child in psutil.Process(each.pid).children()]
    assert bool(forked) == (config.name == "Forking")
    with pytest.raises(DataError, match=message), closing(envs):
        list(map(envs.step, np.zeros((2, 3, 1), int)))
    assert all(process.returncode is not None for process in processes)
    assert not psutil.wait_procs(forked, timeout=20)[1]


def test_a_busy_environment_ends_with_its_parent():
    """The parent is killed while a worker sleeps for long."""
    code = f"""
import numpy as np
from {HERE} import HostEnvs, host_env, in_workers
envs = HostEnvs(in_workers(host_env("Slow", seconds=60)), 2, seed=0)
print(envs._envs[1]._process.pid, flush=True)
envs.step(np.zeros((2, 1), int))
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = Path("/proc", parent.stdout.readline().strip())
    assert worker.exists()
    parent.kill()
    parent.communicate()
    ends = time.monotonic() + 20
    while worker.exists() and time.monotonic() < ends:
        time.sleep(0.05)
    assert not worker.exists()


class Brief(Counter):
    """Ends after one to three steps, as the seed says."""

    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        self.limit = 1 + int(3 * self.offset)
        return result


def test_each_env_plays_its_first_episode_to_the_end_and_waits():
    envs = HostEnvs(host_env("Brief"), num_envs=5, seed=1)
    first_obs = envs.obs.copy()
    envs.step(np.zeros((5, 1), int))
    turns: list[np.ndarray] = []

    def policy(obs: np.ndarray) -> np.ndarray:
        turns.append(obs.copy())
        return np.zeros((5, 1), int)

    played = play(envs, policy)
    expected = 1 + (3 * first_obs[:, 0, 0]).astype(int)
    assert len(set(expected)) > 1
    assert played.lengths.tolist() == expected.tolist()
    assert played.returns.tolist() == [[steps * (steps + 1) / 2] for steps in expected]
    assert len(turns) == max(expected)
    np.testing.assert_array_equal(turns[0], first_obs)
    again = play(envs, lambda _: np.zeros((5, 1), int))
    np.testing.assert_equal(again._asdict(), played._asdict())


OTHERWISE = r"\): played again, it shows other observations"


@pytest.mark.parametrize(
    ("config", "steps", "message"),
    [
        (host_env("Unseeded"), 4, "a saved episode of . steps ends after 2"),
        (host_env("Global", where="steps"), 8, "episode 1, step 3" + OTHERWISE),
        (host_env("Global", where="later start"), 5, "episode 1, step 0" + OTHERWISE),
    ],
)
def test_an_environment_that_does_not_repeat_is_not_continued(
    config: HostEnv, steps: int, message: str
):
    envs = alone(config)
    step(envs, steps)
    states = envs.states
    with pytest.raises(DataError, match=message + r".*; make reset\(seed=\.\.\.\) decide"):
        list(map(envs.restore, [states] * 2))


def test_agents_act_at_once_and_discrete_observations_are_one_hot():
    envs = alone(pair("Pair"))
    turn = envs.step(np.array([[2, 0]]))
    assert turn.next_obs.tolist() == [[[0, 0, 1], [1, 0, 0]]]
    assert turn.rewards.tolist() == [[1, -1]]
    assert envs.interface.agents == ("a", "b")
    # One that terminates for some agents and is cut for others is truncated.
    turn = alone(pair("Apart")).step(np.array([[2, 0]]))
    assert (turn.terminated.item(), turn.truncated.item()) == (False, True)


def test_an_agent_that_leaves_observes_zeros_and_is_paid_none_until_all_have_ended():
    with closing(alone(pair("Pair", leaves=1))) as envs:
        turns = [envs.step(np.array([[2, 1]])) for _ in range(7)]
    assert turns[0].rewards.tolist() == [[1, -1]]
    assert turns[1].rewards.tolist() == [[1, 0]]
    assert [turn.next_obs[0, 1].any() for turn in turns] == [False] * 7
    assert [turn.next_obs[0, 0].tolist() for turn in turns] == [[0, 0, 1]] * 7
    assert [turn.truncated.item() for turn in turns] == [False] * 6 + [True]
    assert envs.obs[0, 1].any()  # of the next episode


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (host_env("Counter", bad_step=2), "step 2.*the observation of agent holds nan: not finite"),
        (host_env("Untyped", reward="1"), "step 1.*reward '1' is not a real number"),
        (host_env("Untyped", terminated="False"), "terminated is 'False', not a bool"),
        (host_env("Untyped", truncated=0), "truncated is 0, not a bool"),
        (pair("Silent"), "agent a has no observation; return one of each agent"),
        (host_env("Old"), r"step returned 4 values, not \(obs, reward, .*; let reset.*return"),
        pytest.param(
            *(registered("Old", 5), r"expected 5, got 4\); let reset.*\(obs, reward, term"),
            marks=pytest.mark.filterwarnings("ignore::DeprecationWarning"),
        ),
    ],
)
def test_what_an_environment_must_not_return_is_named(config: HostEnv, message: str):
    envs = alone(config)
    with pytest.raises(DataError, match=message):
        step(envs, 2)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (host_env("Global", where="start"), "episode 0, step 0" + OTHERWISE),
        (host_env("Pair"), "no Gymnasium environment"),
        (pair("Counter"), "without possible_agents"),
        (host_env("Counted"), "cannot be made: module .* has no Counted; did you mean Counter"),
        (host_env("Counter", wrong=1), r"TypeError.*'wrong'.*kwargs.*it takes \(limit: int"),
        (host_env("Spaceless"), r"a Spaceless without observation_space; set it to a gymnasium\.S"),
        (gymnasium_env("nowhere:Env"), "No module named 'nowhere'; install its package; a file of"),
        (
            gymnasium_env("lacking:Env"),
            r"'absent' \(lacking\.py, line 2\); install what it imports",
        ),
        (gymnasium_env(None, "Nothing-v0"), "Environment `Nothing` doesn't exist.*; mend id, or"),
        (pair("NoAgents"), "possible_agents is empty"),
        (pair("InTurns"), "whose agents act in turns, .*name the parallel"),
        (host_env("Boxed", low=-1e38, high=3e38), "32 bits cannot choose each of them"),
        (host_env("Boxed", low=0, high=2**23, dtype="int64"), "32 bits cannot choose each"),
        (host_env("Boxed"), "Box with finite bounds; wrap"),
        (host_env("Boxed", low=0), "Box with finite bounds; wrap"),
        (host_env("Counter", steps=None), "it has no limit of steps.*give a number"),
        (pair("Pair", steps=None), "it has no limit of steps"),
        (registered("Endless", None), "registered with no limit of steps"),
        (registered("Long", None), "of 1000000 steps, and at most 100000.*set max_episode_steps"),
        (
            host_env("Old", shows="obs"),
            r"reset returned a ndarray, not \(obs, info\); let reset\(self",
        ),
        (host_env("Unseeding"), r"unexpected keyword argument 'seed'; let .*GymV21Compatibility"),
        (pair("OldPair"), r"reset returned a dict, not \(obs, info\); let"),
    ],
)
def test_an_environment_that_cannot_be_used_is_refused_at_once(
    config: HostEnv, message: str, tmp_path: Path, monkeypatch: Patch
):
    (tmp_path / "lacking.py").write_text("import math\nimport absent\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=message):
        alone(config)


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("__init__", "env Faulty cannot be made: "),
        ("reset", "env Faulty (number 0, episode 0, step 0): "),
        ("step", "env Faulty (number 0, episode 0, step 1): "),
        ("close", "env Faulty (number 0, episode 0, step 2): close: "),
    ],
)
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("exit", "SystemExit: 0"),
        ("mute", "Mute: it has no text, for its __str__ raises"),
        ("stop", "KeyboardInterrupt: "),
    ],
)
def test_whatever_user_code_raises_is_one_line(method: str, where: str, error: str, reason: str):
    # A stage has a handler of its own: no Ctrl-C is a KeyboardInterrupt there.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(DataError) as caught:
            live(host_env("Faulty", method=method, error=error))
    finally:
        signal.signal(signal.SIGINT, before)
    assert str(caught.value).startswith(where + reason)


def test_ctrl_c_in_user_code_stays_a_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            live(host_env("Faulty", method="step", error="stop"))
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_of_close_does_not_hide_the_one_that_came_before():
    envs = HostEnvs(host_env("Counter", bad_step=1), num_envs=2, seed=0)
    closed = []
    for env in envs._envs:
        env.close = lambda: closed.append(1) or sys.exit(0)  # type: ignore[method-assign]
    with pytest.raises(DataError, match="not finite"), closing(envs):
        envs.step(np.zeros((2, 1), int))
    with pytest.raises(DataError, match="close: SystemExit: 0"):
        envs.close()
    assert len(closed) == 4


def test_environments_of_which_one_is_refused_are_all_closed(monkeypatch: Patch):
    closed = []
    monkeypatch.setattr(Faulty, "close", lambda _: closed.append(1))
    with pytest.raises(DataError, match="SystemExit"):
        HostEnvs(host_env("Faulty", method="reset", error="exit"), num_envs=3, seed=0)
    assert len(closed) == 3


def test_user_code_leaves_the_modes_of_torch_as_they_were():
    try:
        live(host_env("Graceless"))
        assert torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float32
        assert torch.get_default_device() == torch.device("cpu")
    finally:
        torch.set_default_device(None)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


def test_a_module_that_parses_arguments_finds_none_of_ours(tmp_path: Path, monkeypatch: Patch):
    (tmp_path / "parsing_module.py").write_text(
        f"import argparse\nfrom {HERE} import Counter\nargparse.ArgumentParser().parse_args()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["collect", "iqn"])
    config = host_env("Counter").model_dump() | {"import": "parsing_module:Counter"}
    live(HostEnv.model_validate(config))
    assert sys.argv == ["collect", "iqn"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "CartPole-v1"}, "both make the environment"),
        ({"import": "some.module"}, "nothing makes the environment"),
        ({"kind": "pettingzoo", "id": "x-v0", "import": None}, "PettingZoo has no ids"),
        ({"kind": "gym"}, "'gymnasium' or 'pettingzoo'"),
        ({"id": "some.module:Env-v0", "import": None}, "set import: some.module and id: Env-v0"),
    ],
)
def test_a_config_that_names_no_environment_is_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=message):
        HostEnv.model_validate(host_env("Counter").model_dump() | changes)
