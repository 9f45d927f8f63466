"""Env, actions -> nothing, or an error that names the first invalid action."""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.colony.config import Env
from quatrain.envs.colony.rules import PARAMETERS


def check_actions(rules: Env, action: Float[Tensor, "..."], count: int | None = None) -> None:
    """Raises ValueError unless all actions are within their bounds, which are inclusive.

    Raises:
        ValueError: action is not of shape (count, 5), or holds nan or a value outside its bounds.
            Without a count any number of actions is allowed.
    """
    if count is None and action.dim():
        count = len(action)
    if list(action.shape) != [count, len(PARAMETERS)]:
        actual = _brackets(*action.shape)
        expected = _brackets("count" if count is None else count, len(PARAMETERS))
        raise ValueError(f"action has shape {actual}, expected {expected}")
    low, high = action.new_tensor(rules.bounds).unbind(1)
    valid = (action >= low) & (action <= high)
    if not valid.all():
        raise ValueError(_fault(rules, action, valid))


def _fault(rules: Env, action: Tensor, valid: Tensor) -> str:
    if action.isnan().any():
        return f"action contains nan in row {int(action.isnan().any(1).nonzero()[0])}"
    row, parameter = (~valid).nonzero()[0].tolist()
    # float32 in its shortest form prints 17.2 instead of 17.200000762939453.
    value, low, high = map(np.float32, (action[row, parameter].item(), *rules.bounds[parameter]))
    return f"action[{row}].{PARAMETERS[parameter]} = {value!s} outside [{low!s}, {high!s}]"


def _brackets(*sizes: int | str) -> str:
    return f"[{','.join(map(str, sizes))}]"
