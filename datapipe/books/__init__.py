"""
The books of a finished build: pure queries over its Parquet files, for `datapipe show` and for Python.

library.py   Books: the tables, opened; funnel, drops, clusters, lengths
what_if.py   other bounds, answered from the stored signals
texts.py     documents themselves: dropped ones, pairs of duplicates, what became of one
differ.py    two texts word by word
"""

from datapipe.books.library import Books, Drop, Step
from datapipe.books.texts import Pair, dropped, duplicates, life
from datapipe.books.what_if import WhatIf, what_if

__all__ = ["Books", "Drop", "Pair", "Step", "WhatIf", "dropped", "duplicates", "life", "what_if"]
