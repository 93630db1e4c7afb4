"""What a number must be, for every setting of the house."""

import math

import numpy as np
import pytest

from minidecode.checks import real, shown, whole
from minidecode.errors import InputError

ABSURD = {"1e400": 10**400, "-1e400": -(10**400), "1e5000": 10**5000}
NO_WHOLE = [True, np.True_, 2.0, "3", None, [1], np.array(3), -1, 2**63]
NO_REAL = [True, np.False_, "1", None, [1.0], 1j, math.nan, math.inf, -0.1, np.float32("nan")]


def at_least_0(x):
    return 0 <= x < math.inf


@pytest.mark.parametrize("value", [0, 7, np.int8(7), np.uint64(7), 2**63 - 1])
def test_whole_takes_pythons_and_numpys_integers(value):
    found = whole("n", value, 0)
    assert found == value and type(found) is int


def test_whole_refuses_the_rest_in_one_short_sentence():
    for value in [*NO_WHOLE, *ABSURD.values()]:
        with pytest.raises(InputError, match=r"^n: got .*, a whole number of at least 0 was") as e:
            whole("n", value, 0)
        assert len(str(e.value)) < 150


def test_whole_names_both_limits_where_there_are_two():
    assert whole("n", 3, 1, 3) == 3
    for value in (0, 4, 10**400):
        with pytest.raises(InputError, match=r"a whole number from 1 to 3 was wanted$"):
            whole("n", value, 1, 3)


@pytest.mark.parametrize(
    "value", [0, 1.5, np.float16(1.5), np.int64(3), 2.0**900, np.longdouble(2)]
)
def test_real_takes_pythons_and_numpys_numbers(value):
    found = real("x", value, "a finite number of at least 0", at_least_0)
    assert found == float(value) and type(found) is float


def test_real_refuses_the_rest_in_one_short_sentence():
    for value in [*NO_REAL, *ABSURD.values()]:
        with pytest.raises(InputError, match=r"^x: got .*, a finite number of at least 0 was") as e:
            real("x", value, "a finite number of at least 0", at_least_0)
        assert len(str(e.value)) < 150


def test_what_is_long_is_shown_short():
    assert shown(-3) == "-3" and shown(10**400) == "a whole number of 1329 bits"
    assert len(shown("x" * 1000)) == 60
