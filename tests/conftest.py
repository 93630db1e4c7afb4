"""What all tests share: the embedded pair, and patience with a busy machine."""

import os

import pytest
from hypothesis import HealthCheck, settings

# NumPy's threads wait for each other by spinning: on a busy machine, products as small as these
# take forty times as long with two of them as with one. NumPy looks when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A slow machine is no fault of the code, and nothing here is timed.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def storytellers():
    """The embedded target and draft; their tokenizer is `.tokenizer`."""
    import minidecode

    return minidecode.load("storyteller-6m")[0], minidecode.load("storyteller-1m")[0]
