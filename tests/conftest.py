"""What every test may ask for: the folder of shared data beside the checkout."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

CHECKOUT = Path(__file__).parents[1]

# How long an example takes, or is in the making, says how busy the machine is.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
# Where a run decides whether a change lands, its examples are the same at every run: else one that is drawn for the
# first time would be held against a change that has nothing to do with it.
settings.register_profile("gate", settings.get_profile("here"), derandomize=True, database=None)
settings.load_profile("here")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the checkout (real text, peers' failing inputs), or skip."""
    folder = CHECKOUT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no folder `shared` beside the checkout")
    return folder
