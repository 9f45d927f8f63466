"""Rules, actions -> nothing, or the first fault of the actions."""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.colony.rules import PARAMETERS, Rules


def check_actions(rules: Rules, action: Float[Tensor, "..."], count: int | None = None) -> None:
    """Refuse actions that are not within their bounds; bounds belong to their range.

    Raises:
        ValueError: action is not of shape (count, 5), holds nan or a value outside its bounds. Without a count any
            number of rows is right.
    """
    rows = len(action) if action.dim() and count is None else count
    if list(action.shape) != [rows, len(PARAMETERS)]:
        expected = "count" if rows is None else rows
        raise ValueError(
            f"action has shape {_brackets(*action.shape)}, expected {_brackets(expected, len(PARAMETERS))}"
        )
    low, high = action.new_tensor(rules.bounds).unbind(1)
    valid = (action >= low) & (action <= high)
    if not valid.all():
        raise ValueError(_fault(rules, action, valid))


def _fault(rules: Rules, action: Tensor, valid: Tensor) -> str:
    if action.isnan().any():
        return f"action contains nan in row {int(action.isnan().any(1).nonzero()[0])}"
    row, parameter = (~valid).nonzero()[0].tolist()
    # As float32 and in its shortest form: 17.2, and not 17.200000762939453.
    value, low, high = (
        np.float32(number) for number in (action[row, parameter].item(), *rules.bounds[parameter])
    )
    return f"action[{row}].{PARAMETERS[parameter]} = {value!s} outside [{low!s}, {high!s}]"


def _brackets(*sizes: int | str) -> str:
    return f"[{','.join(map(str, sizes))}]"
