"""What every test may ask for: the folder of shared data beside the checkout."""

from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the checkout (real text, peers' failing inputs), or skip."""
    folder = CHECKOUT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no folder `shared` beside the checkout")
    return folder
