"""recorded trajectories, or a Gymnasium environment -> the field that active_dynamics learns."""

import io
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.judging.render import markdown_table
from pipeline.runtime import console
from pipeline.runtime.stage import prepare_process
from pipeline.storage.params_file import read_params
from quatrain.devices import on_device
from quatrain.errors import ConfigError
from quatrain.models.active_dynamics.config import LEARNED_WARMUP, ActiveDynamicsConfig
from quatrain.params import Params
from quatrain.registry import MODELS
from quatrain.statistics import Interval
from quatrain.storage import folders
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.disk_errors import printable
from quatrain.storage.formats import PARSER_ERRORS

# These load torch, which takes seconds: whoever asks for --help does not wait for it.
if TYPE_CHECKING:
    from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
    from quatrain.models.active_dynamics.collect import Rollouts

MODEL = "active_dynamics"
# Policy of a system if no option names one.
ARM = "active"
SCORES = ("innovation_nll", "nis", "whiteness")
# Bytes of a recording that are read into memory, at most.
LARGEST = 2**32
# Scores with an interval that holds those of a right filter.
MISFIT = ("nis", "whiteness")
REWRITE = "write it with numpy.savez"
NOISE = "active_dynamics.network.bayes_filter.process_noise"


class Request(NamedTuple):
    """Holds the source, a recording or a system; `arm` and `transitions` are those of a system."""

    recording: str | None
    system: str | None
    arm: str | None
    transitions: int
    out: str


def identify(root: Path, request: Request) -> None:
    """Learns the field, writes it to a file, and prints how well it explains held-out data."""
    check_request(request)
    from quatrain.models.active_dynamics import identify as learning

    params = params_for(root, request)
    config = params.active_dynamics
    prepare_process(params)
    with on_device(params, MODELS[MODEL]):
        if request.recording:
            learner, held_out = from_recording(config, Path(request.recording))
        else:
            assert request.system  # by check_request
            system = learning.make_system(request.system, params.seed)
            arm = request.arm or ARM
            learner, held_out = learning.explore(config, system, arm, params.seed)
        scores = learning.evaluate(learner, held_out)
        write(Path(request.out), learner)
    print(table(scores), "", f"field and channels: {request.out}", sep="\n")
    for line in misfit_warnings(scores):
        console.info(line)


def check_request(request: Request) -> None:
    """Refuses what does not go together.

    Raises:
        ConfigError: there are two sources or none, or recorded data would have to act.
    """
    if bool(request.recording) == bool(request.system):
        raise ConfigError("give one of --recording FILE and --system NAME")
    out = Path(request.out)
    if out.is_dir() or npz_path(out).is_dir():
        raise ConfigError(f"--out {request.out} is a folder; name a file")
    if request.recording and request.arm:
        raise ConfigError(
            f"--arm {request.arm}: {request.recording} is recorded and cannot act; leave --arm out,"
            " or give --system"
        )


def params_for(root: Path, request: Request) -> Params:
    """Returns params.yaml for a single filter with identified channels.

    Raises:
        ConfigError: params.yaml cannot be used so.
    """
    from quatrain.models.active_dynamics.identify import HELD_OUT

    changes = {
        "seeds": 1,
        "collect": {"warmup": int(np.ceil(LEARNED_WARMUP / (1 - HELD_OUT)))},
        "network": {"family": "bayes_filter", "decoder": "linear"},
        "train": {"arms": ["random"], "transitions": request.transitions},
    }
    return read_params(root, None, {MODEL: changes})


def from_recording(
    config: ActiveDynamicsConfig, path: Path
) -> "tuple[BayesFilterLearner, Rollouts]":
    """Learns from all but the last part of a recording; returns the learner and that part.

    Raises:
        ConfigError: the file cannot be read.
        DataError: nothing can be learned from what it holds.
    """
    from quatrain.models.active_dynamics import identify as learning

    rollouts = learning.read_recording(config, path.name, read_arrays(path))
    train, held_out = learning.split(rollouts)
    return learning.learn(config, train), held_out


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file; executes nothing in it.

    Raises:
        ConfigError: it is missing, damaged, or unfolds to too much.
    """
    try:
        with folders.open_file(path) as stream, zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > LARGEST or len({member.filename for member in members}) < len(members):
                reason = f"unfolds to {size:,} bytes of at most {LARGEST:,}, or holds a name twice"
                raise ConfigError(f"{printable(path)}: {reason}; record less")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            for name, array in arrays.items():
                if not isinstance(array, np.ndarray):  # numpy gives the bytes of any other file
                    raise ConfigError(
                        f"{printable(path)}: {printable(name)} is no array; {REWRITE}"
                    )
            return arrays
    except folders.FolderError as error:
        raise ConfigError(f"{error}; name a file that numpy.savez wrote") from None
    except ConfigError:
        raise
    except (*PARSER_ERRORS, zipfile.BadZipFile, zlib.error, tokenize.TokenError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{printable(path)}: {reason}; {REWRITE}") from None


def write(path: Path, learner: "BayesFilterLearner") -> None:
    """Writes mean and standard deviation of the field on the grid of the region, and channels."""
    import torch

    from quatrain.envs.vector_field.fields import region_grid

    grid = region_grid(learner.config.env.region_radius, learner.config.env.d)
    moments = learner.moments(grid.double()[None])
    assert learner.decoder is not None
    weight, bias, noise = (part[0].numpy() for part in learner.decoder)
    arrays: dict[str, Any] = {
        "grid": grid.numpy(),
        "field": moments.mean[0].numpy(),
        "field_sd": torch.sqrt(moments.variance[0]).numpy(),
        "weight": weight,
        "bias": bias,
        "noise_variance": noise,
    }
    data = io.BytesIO()
    np.savez(data, **arrays)
    write_durably(npz_path(path), data.getvalue())


def npz_path(path: Path) -> Path:
    """Returns the path with the ending that numpy gives it."""
    return path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")


def table(scores: dict[str, float]) -> str:
    lines = []
    for name in SCORES:
        still = f"{scores[f'{name}_zero_field']:.4g}"
        lines.append((name, f"{scores[name]:.4g}", still, expected(scores, name)))
    return markdown_table(("on held-out transitions", "learned", "no field", "if right"), lines)


def expected(scores: dict[str, float], name: str) -> str:
    """Formats the interval of a filter that is right; innovation_nll has none."""
    if name not in MISFIT:
        return ""
    low, high = interval(scores, name)
    return f"{low:.3g} to {high:.3g}"


def interval(scores: dict[str, float], name: str) -> Interval:
    return Interval(scores[f"{name}_expected_low"], scores[f"{name}_expected_high"])


def misfit_warnings(scores: dict[str, float]) -> list[str]:
    """Returns a line per sign that field or noise do not fit, on either side of what is right."""
    lines = []
    if scores["innovation_nll"] >= scores["innovation_nll_zero_field"]:
        lines.append("the field explains no more than none; record more, or raise action_bound")
    sides = {name: side(scores, name) for name in MISFIT}
    if sides["nis"] * sides["whiteness"] < 0:
        return [*lines, channel_noise_warning(scores, sides["nis"])]
    for name, place in sides.items():
        value = scores[name]
        low, high = interval(scores, name)
        if place < 0:
            lines.append(f"{name} {value:.3g} is below {low:.3g}: lower {NOISE}")
        if place > 0:
            lines.append(
                f"{name} {value:.3g} is above {high:.3g}: raise {NOISE}, lower network.rbf.length,"
                " or record more"
            )
    return lines


def side(scores: dict[str, float], name: str) -> int:
    """Returns -1 for a score below its interval, 0 inside, 1 above."""
    low, high = interval(scores, name)
    return int(scores[name] > high) - int(scores[name] < low)


def channel_noise_warning(scores: dict[str, float], nis_side: int) -> str:
    """Says that the noise of channels is wrong; wrong process noise moves both scores one way.

    `identify_decoder` assumes one variance for all channels.
    """
    nis, whiteness = (f"{name} {scores[name]:.3g}" for name in MISFIT)
    size = "small" if nis_side > 0 else "large"
    return (
        f"{nis} and {whiteness} lie on opposite sides of their intervals: the identified noise of"
        f" channels is too {size}; scale channels to equal noise"
    )
