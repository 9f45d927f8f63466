"""the yields of a training -> a bar on a terminal or in a notebook, plain lines elsewhere."""

import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from quatrain.api.session import in_notebook
from quatrain.progress import Progress

# Lines of a whole training where there is no bar.
LINES = 20


def shown(
    progress: Iterable[Progress], name: str, total: int, headline: tuple[str, ...], enabled: bool
) -> Iterator[Progress]:
    """Yields what a training yields, and shows steps and two metrics on stderr."""
    if not enabled:
        yield from progress
        return
    bar = make_bar(name, total)
    values: dict[str, str] = {}
    step = 0
    printed_step = 0
    try:
        for current in progress:
            for metric in headline:
                if len(current.metrics[metric]):
                    values[metric] = f"{np.mean(current.metrics[metric][-1]):.4g}"
            if bar is not None:
                bar.set_postfix(values, refresh=False)
                bar.update(current.step - step)
            elif (current.step - printed_step) * LINES >= total or current.step == total:
                printed_step = current.step
                parts = (f"{metric} {value}" for metric, value in values.items())
                write(f"{name}: {current.step:,}/{total:,}  {'  '.join(parts)}".rstrip())
            step = current.step
            yield current
    finally:
        if bar is not None:
            bar.close()


def make_bar(name: str, total: int) -> Any:
    """Returns tqdm's bar for a notebook or a terminal; None without tqdm, and elsewhere."""
    if find_spec("tqdm") is None:
        return None
    settings: dict[str, Any] = {"total": total, "desc": name, "unit": " steps"}
    if in_notebook() and find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as notebook_bar

        return notebook_bar(**settings)
    if in_notebook() or sys.stderr.isatty():
        from tqdm import tqdm as text_bar

        return text_bar(**settings)
    return None


def write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
