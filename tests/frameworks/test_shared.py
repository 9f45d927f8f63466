"""Settings of the process last as long as any thread needs them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from quatrain.errors import ConfigError
from quatrain.frameworks.settings import Shared


def test_settings_are_made_by_the_first_and_undone_by_the_last():
    calls: list[str] = []

    @contextmanager
    def settings(threads: int) -> Iterator[None]:
        calls.append(f"set {threads}")
        yield
        calls.append("restored")

    shared = Shared("threads", settings)
    first, second = ExitStack(), ExitStack()
    first.enter_context(shared(1))
    second.enter_context(shared(1))
    first.close()
    assert calls == ["set 1"]
    with pytest.raises(ConfigError, match="threads: this process computes with 1 already, so that"):
        first.enter_context(shared(2))
    second.close()
    with shared(2):
        pass
    assert calls == ["set 1", "restored", "set 2", "restored"]
