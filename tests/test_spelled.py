"""A report as JSON piece by piece, against JSON of the whole."""

import json

import pages
import pytest

from datapipe.auditing import report as r
from datapipe.keyed import canonical
from datapipe.units import digest


@pytest.mark.parametrize(
    "settings", [{"n": 25}, {"n": 12, "hostile": pages.HOSTILE}, {"n": 0, "everything": False, "untested": 0}]
)
def test_the_same_as_whole(settings):
    report = pages.report(**settings)
    whole = report.model_dump(mode="json")
    assert report.digest == digest({name: value for name, value in whole.items() if name != "run"})
    assert report.dumped() == canonical(whole | {"digest": report.digest})
    assert json.loads(report.readable()) == whole | {"digest": report.digest}
    for data in (report.dumped(), report.readable()):
        assert r.from_json(data) == report
        assert r.from_json(data).digest == report.digest


def test_an_entry_is_a_line():
    lines = pages.report(25).readable().decode().splitlines()
    assert len([line for line in lines if line.startswith('   {"suite": "gsm8k", "id": ')]) >= 3


def test_the_digest_is_of_the_copy_and_not_of_the_run():
    report = pages.report(3)
    old = report.digest
    assert report.model_copy(update={"tool": "another"}).digest != old
    assert report.model_copy(update={"run": report.run.model_copy(update={"seconds": 99.0})}).digest == old
    assert report.digest == old
