"""Names of fields: those that are known, those that a script adds, and refusals of others."""

import numpy as np
import pytest
import torch

from quatrain.envs.vector_field.kinds import (
    KINDS,
    FieldError,
    known_kinds,
    register_field,
    register_table,
    unknown_kind,
)
from tests.envs.vector_field.worlds import raw_field

AXES = [np.linspace(-2, 2, 3)] * 2


def test_an_error_for_a_misspelt_kind_names_the_nearest():
    assert unknown_kind("limitcycle") == (
        "'limitcycle' is unknown: did you mean 'limit_cycle'? Known: limit_cycle, "
        "double_limit_cycle, van_der_pol, "
        "duffing, snowman, saddle_spiral, multi_attractor, linear, table"
    )
    assert "did you mean 'snowman'?" in unknown_kind("?snow?")
    with pytest.raises(
        FieldError,
        match=r"^Field 'limitcycle' is unknown: did you mean 'limit_cycle'\? Known: .*\.$",
    ):
        raw_field("limitcycle")


def test_built_in_kinds_keep_their_meaning():
    message = (
        "^Field 'duffing' cannot be registered: a built-in kind has this name; choose another.$"
    )
    with pytest.raises(FieldError, match=message):
        register_field("duffing")
    with pytest.raises(FieldError, match=message):
        register_table("duffing", AXES, np.ones((3, 3, 2)))


def test_a_registration_is_a_kind_that_is_proposed_too_and_replaces_earlier_ones():
    """A notebook cell may run again."""
    x = torch.ones(1, 2)
    register_field("my_field")(lambda x: -x)
    shrinking = register_field("my_field")(lambda x: 3 * x)
    assert shrinking(x).tolist() == raw_field("my_field")(x).tolist() == [[3, 3]]
    register_table("my_table", AXES, np.ones((3, 3, 2)))
    assert known_kinds() == (*KINDS, "my_field", "my_table")
    assert "did you mean 'my_field'?" in unknown_kind("myfield")
    register_table("my_field", AXES, np.full((3, 3, 2), 5.0))
    assert raw_field("my_field")(x).tolist() == [[5, 5]]
    register_field("my_field")(lambda x: 7 * x)
    assert raw_field("my_field")(x).tolist() == [[7, 7]]
    assert known_kinds().count("my_field") == 1
