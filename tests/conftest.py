"""What all tests share: the embedded pair, and patience with a busy machine."""

import pytest
from hypothesis import HealthCheck, settings

from minidecode import load

# A slow machine is no fault of the code, and nothing here is timed.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def storytellers():
    """The embedded target and draft; their tokenizer is `.tokenizer`."""
    return load("storyteller-6m")[0], load("storyteller-1m")[0]
