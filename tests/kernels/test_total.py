"""The sum that memory is timed with."""

import math

import numpy as np
import pytest
from hypothesis import given
from kernels.cases import both, no_warnings, rows_of_numbers, search

pytestmark = no_warnings


@both
@search(60)
@given(arguments=rows_of_numbers())
def test_total_is_the_sum(kernels, arguments):
    x = arguments[0]
    right = math.fsum(x.astype(np.float64).ravel())
    room = 1e-5 if x.dtype == np.float32 else 1e-13
    assert kernels.total(x) == pytest.approx(right, abs=room * float(1 + np.abs(x).sum()))
