"""The report of an audit as one HTML file: nothing is fetched, and no text of a document is ever code."""

import base64
import hashlib
from collections.abc import Iterator
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from datapipe.auditing.page import figures, lists, words
from datapipe.auditing.page.safe import breaking, script_json, visible
from datapipe.auditing.report import CLASSES, THRESHOLDS, WHAT, Report

MANY = 40  # sets, beyond which those that say nothing are folded away
LONGEST = 2000  # characters of a name, path or sentence outside of the lists


def render(report: Report) -> str:
    """The page.  Equal reports give equal pages; it can be encoded as UTF-8 whatever the documents hold."""
    style, script = _file("page.css"), _file("page.js")
    # only these two may act: a script or a style that came in with a text would not run
    policy = (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    data = [(f"data-{name}", script_json(value)) for name, value in _data(report)]
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            report=report,
            policy=policy,
            data=data,
            style=Markup(style),  # noqa: S704 -- our own
            script=Markup(script),  # noqa: S704 -- our own
        )
    )


def _data(report: Report) -> Iterator[tuple[str, Any]]:
    """Names and contents of the script elements with data."""
    yield "meta", lists.meta()
    for section in report.sections:
        yield f"flagged-{section.role}", lists.flagged(section)
        for at, chunk in enumerate(lists.chunks(section)):
            yield f"flagged-{section.role}-{at}", chunk
        yield f"mirrors-{section.role}", lists.mirrors(section.mirrors)
        yield f"common-{section.role}", lists.common(section.common)
        yield f"repeated-{section.role}", lists.common(section.repeated)
        yield f"cells-{section.role}", lists.cells(section)
    yield "untested", lists.untested(report.evals)
    yield "twins", lists.twins(report.evals)
    yield "files", lists.files(report.scope)
    if report.trace:
        yield "retrieved", lists.retrieved(report.trace)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("datapipe.auditing.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_final,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        figures=figures, words=words, CLASSES=CLASSES, WHAT=WHAT, THRESHOLDS=THRESHOLDS, MANY=MANY
    )
    environment.filters.update(
        count=words.count,
        score=words.score,
        percent=words.percent,
        figure=words.figure,
        size=words.size,
        plural=words.plural,
        breaking=breaking,
    )
    return environment


def _final(value: Any) -> Any:
    """What an expression of a template becomes before it is escaped."""
    return "–" if value is None else visible(words.short(value, LONGEST) if type(value) is str else value)


def _file(name: str) -> str:
    return resources.files(__package__ or __name__).joinpath(name).read_text("utf-8")


def _source(text: str) -> str:
    """A source of the content security policy: this text and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
