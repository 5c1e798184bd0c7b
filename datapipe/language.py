"""
Language: which one a text is in, by a model that the manifest names.

The model is a fastText classifier whose labels are languages (`__label__en`, `__label__eng_Latn`).  It is read once:
the bytes that are hashed into recipe_id are the bytes that classify.

* What is classified is the normal form of the text after edits, with FS, GS, RS, US and NUL as blanks too, so layout
  changes nothing.  Of a text of more than SAMPLE characters it is WINDOWS pieces at equal distances: the model takes
  its time by the character, and 4,096 of them give the label of the whole text for 99.9 % of web pages.
* A text without a letter has no language: the model would guess one from nothing.
* The word `</s>` ends the input of the library, so it is a blank.

The library holds Python's lock while it classifies, so threads wait for each other here.
"""

import contextlib
import hashlib
import importlib
import importlib.metadata
import re
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.errors import ManifestError
from datapipe.kernels import unicode
from datapipe.manifest import Manifest

VERSION = 1
MODULE = "fasttext"  # several packages provide it; the extra chooses the one for this Python
PREFIX = "__label__"
SAMPLE, WINDOWS = 4096, 16  # characters
BLANKS = ("\0", "\x1c", "\x1d", "\x1e", "\x1f", "</s>")  # what no White_Space is, but parts words or ends the input
DIGITS = 4  # of a score; beyond them machines differ

MAGIC, NEWEST = 793_712_314, 12
SUPERVISED = 3
ARGUMENTS = "<12id"  # dim, ws, epoch, minCount, neg, wordNgrams, loss, model, bucket, minn, maxn, lrUpdateRate, t
CENTROIDS = 256


@dataclass(frozen=True)
class Language:
    """A model, ready to classify; `library` is the package that runs it."""

    sha256: str
    library: str
    model: Any = field(repr=False, compare=False)

    def classify(self, texts: pa.Array) -> tuple[list[str | None], list[float | None]]:
        """The first label of each text without its prefix, and its score from 0 to 1; null where there is none."""
        found = [self._classify(shown(form.decode())) for form in text.normal_forms(texts).to_pylist()]
        return [label for label, _ in found], [score for _, score in found]

    def _classify(self, sample: str) -> tuple[str | None, float | None]:
        if not _letter().search(sample):
            return None, None
        labels, scores = self.model.predict(sample, k=1)
        if not labels:  # a model without subwords, and no word that it knows
            return None, None
        return labels[0].removeprefix(PREFIX), round(min(float(scores[0]), 1.0), DIGITS)


def check(manifest: Manifest) -> Language | None:
    """The model of a manifest, found fit before any work; None where none is asked for."""
    if manifest.language is None:
        return None
    path = manifest.resolve(manifest.language.model)
    where = f"{manifest.path}: language.model"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ManifestError(f"{where}: cannot read {path}: {error.strerror}") from error
    return load(data, f"{where}: {path}")


def load(data: bytes, where: str) -> Language:
    """data: a fastText model; where: what messages call it."""
    try:
        library: Any = importlib.import_module(MODULE)
    except ImportError:
        raise ManifestError(
            f"{where}: language models need a library that is not installed: pip install 'datapipe[lang]'"
        ) from None
    try:
        _walk(data)
        with tempfile.NamedTemporaryFile(prefix="datapipe-model-") as copy:  # it loads from a path alone
            copy.write(data)
            copy.flush()
            model = library.load_model(copy.name)
        model.predict("a", k=1)
    except (ValueError, RuntimeError) as error:
        raise ManifestError(f"{where}: is no fastText model that classifies: {error}") from error
    return Language(hashlib.sha256(data).hexdigest(), _package(), model)


def _package() -> str:
    """The installed package that provides the module."""
    return min(importlib.metadata.packages_distributions()[MODULE])


# --- what is classified ----------------------------------------------------------------------------------------


def shown(form: str) -> str:
    """Of a text in normal form, what the model is shown."""
    if any(blank in form for blank in BLANKS):
        for blank in BLANKS:
            form = form.replace(blank, " ")
        form = " ".join(form.split())
    if len(form) <= SAMPLE:
        return form
    return " ".join(_windows(form))


def _windows(form: str) -> Iterator[str]:
    """Pieces at equal distances, the first and the last characters among them, without the words that a cut halves."""
    size = SAMPLE // WINDOWS
    for n in range(WINDOWS):
        start = n * (len(form) - size) // (WINDOWS - 1)
        piece = form[start : start + size]
        first = piece.find(" ") + 1 if n else 0
        last = piece.rfind(" ") if n < WINDOWS - 1 else size
        yield piece[first : last if last > first else size]


@cache
def _letter() -> re.Pattern[str]:
    """One letter, by the package's Unicode version."""
    page, entry, *_ = unicode.tables()
    flags = (entry.reshape(-1, 128)[page].ravel()[:0x110000] >> unicode.LETTER & 1).astype(np.int8)
    edges = np.flatnonzero(np.diff(flags, prepend=0, append=0)).reshape(-1, 2).tolist()
    return re.compile("[" + "".join(f"{chr(low)}-{chr(high - 1)}" for low, high in edges) + "]")


# --- the file --------------------------------------------------------------------------------------------------


class _Reader:
    """Takes a model's bytes from the front; ValueError where they end."""

    def __init__(self, data: bytes):
        self.data, self.at, self.part = data, 0, "head"

    def take(self, form: str) -> tuple[Any, ...]:
        """Values in `struct`'s words."""
        at = self.at
        self.skip(struct.calcsize(form))
        return struct.unpack_from(form, self.data, at)

    def skip(self, size: int) -> None:
        if size < 0 or self.at + size > len(self.data):
            raise ValueError(f"it ends within its {self.part}; get the file again")
        self.at += size

    def word(self) -> None:
        """Bytes up to a NUL, and it."""
        end = self.data.find(b"\0", self.at)
        self.skip(end + 1 - self.at if end >= 0 else -1)


def _walk(data: bytes) -> None:
    """
    ValueError where the bytes are no whole classifier.  The library itself would crash, or read for ever, where a
    file is cut off.  The form is that of fastText's own saveModel, versions 11 and 12.
    """
    reader = _Reader(data)
    with contextlib.suppress(ValueError):
        if reader.take("<i") == (MAGIC,) and 11 <= reader.take("<i")[0] <= NEWEST:
            reader.part = "arguments"
    if reader.part == "head":
        raise ValueError("it does not begin as one")
    if reader.take(ARGUMENTS)[7] != SUPERVISED:
        raise ValueError("it holds word vectors and no labels")
    reader.part = "dictionary"
    size, _, labels, _, pruned = reader.take("<3i2q")
    for _ in range(size):
        reader.word()
        reader.skip(9)
    reader.skip(8 * max(pruned, 0))
    if labels < 1:
        raise ValueError("it has no labels")
    reader.part = "matrices"
    (quantised,) = reader.take("<?")
    _walk_matrix(reader, quantised)
    (output,) = reader.take("<?")
    _walk_matrix(reader, quantised and output)
    if reader.at != len(data):
        raise ValueError(f"{len(data) - reader.at} bytes follow its end")


def _walk_matrix(reader: _Reader, quantised: bool) -> None:
    if not quantised:
        rows, columns = reader.take("<2q")
        reader.skip(4 * rows * columns)
        return
    norms, rows, _, codes = reader.take("<?2qi")
    reader.skip(codes)
    _walk_quantizer(reader)
    if norms:
        reader.skip(rows)
        _walk_quantizer(reader)


def _walk_quantizer(reader: _Reader) -> None:
    dim, *_ = reader.take("<4i")
    reader.skip(4 * dim * CENTROIDS)
