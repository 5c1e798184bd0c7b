"""The two pictures: PNG of the promised size, of what was asked, the same bytes for the same question."""

import io
import json

import numpy as np
import pytest
import scaling_runs
from matplotlib import image

from datapipe import cli
from datapipe.estimate import pictures
from datapipe.estimate.constants import PUBLISHED
from datapipe.estimate.lifetime import Serving
from datapipe.estimate.quantities import Problems
from datapipe.estimate.resample import Evidence
from datapipe.estimate.scaling import Question, answer

BESIROGLU = PUBLISHED["besiroglu"]


def seen(data: bytes) -> np.ndarray:
    return image.imread(io.BytesIO(data), format="png")


def near(pixels: np.ndarray, colour: str) -> int:
    """How many pixels have about that colour."""
    wanted = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return int((np.abs(pixels[:, :, :3] - wanted).max(axis=2) < 0.06).sum())


@pytest.mark.parametrize("name", PUBLISHED)
def test_contours_of_every_published_set(name):
    constants = PUBLISHED[name]
    found = answer(Question(budget=1e21), constants, Evidence(), Problems())
    pixels = seen(pictures.contours(constants, found.plans))
    assert pixels.shape[:2] == (840, 960)
    assert near(pixels, pictures.MARK) > 50  # the plan
    assert (near(pixels, pictures.BOX) > 800) == (constants.box is not None)  # the runs' range
    assert near(pixels, pictures.OPTIMUM) > 200


def test_runs_are_drawn_and_the_bytes_repeat():
    runs = scaling_runs.runs(each=6)
    plain, dotted = (pictures.contours(BESIROGLU, (), one) for one in (None, runs))
    assert pictures.contours(BESIROGLU, (), runs) == dotted
    assert np.abs(seen(plain) - seen(dotted)).max() > 0.3


def test_the_optimum_against_tokens_served():
    data = pictures.served(BESIROGLU, 2.2, 1e14, at=2e12)
    pixels = seen(data)
    assert pixels.shape[:2] == (864, 960)
    for colour in (pictures.OPTIMUM, pictures.BOX, pictures.SECOND, pictures.MARK):
        assert near(pixels, colour) > 200
    repeated = pictures.served(BESIROGLU, 2.6, 1e13, unique=5e9)
    assert seen(repeated).shape == pixels.shape


def test_more_plans_than_marks_are_no_problem():
    plans = answer(Question(budget=1e23, serving=Serving(written=2e12)), BESIROGLU, Evidence(), Problems()).plans
    assert len(seen(pictures.contours(BESIROGLU, plans * 3)))


def test_the_command_writes_both(capsys, tmp_path):
    folder = tmp_path / "pictures"
    flags = ["estimate", "scaling", "--budget", "1e22", "--pictures", str(folder), "--json"]
    assert cli.run(flags) == 0
    assert json.loads(capsys.readouterr().out)["pictures"] == [str(folder / "contours.png")]
    assert cli.run([*flags, "--inference-tokens", "1T"]) == 0
    assert json.loads(capsys.readouterr().out)["pictures"] == [
        str(folder / "contours.png"),
        str(folder / "lifetime.png"),
    ]
    for path in folder.iterdir():
        assert seen(path.read_bytes()).ndim == 3
