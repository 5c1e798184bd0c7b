"""
datapipe: one YAML file to a language-model training set that can be explained.

    import datapipe

    built = datapipe.build(datapipe.load("manifest.yaml"))      # a new version, or the one that is there
    with datapipe.show(built.path) as books:                    # its books, and its tables in DuckDB
        print(books.funnel())
    datapipe.verify(built.path).ok
    with datapipe.open(built.path) as data:                     # its rows, for training
        for batch in data.loader("train", global_batch_rows=64):
            ...
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["audit", "build", "consumed", "load", "open", "show", "verify"]

if TYPE_CHECKING:
    from datapipe.api import audit, build, load, show, verify
    from datapipe.feed import consumed, open  # noqa: A004  the verb of the API

_OF_FEED = ("consumed", "open")  # a training node has neither numba nor duckdb


def __getattr__(name: str) -> object:
    """The verbs, loaded on first use: duckdb, pyarrow and numba take half a second."""
    if name in _OF_FEED:
        from datapipe import feed

        return getattr(feed, name)
    if name in __all__:
        from datapipe import api

        return getattr(api, name)
    raise AttributeError(f"module 'datapipe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
