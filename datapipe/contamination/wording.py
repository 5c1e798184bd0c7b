"""
What of a text was found in words: whether it says anything that a quotation, an idiom or a formula does not.

* Text in quotation marks is others' text: a prompt that quotes a speech is found in the speech.  Marks are “ ” ‘ ’ " '
  « » 「 」 『 』 《 》 `` '' and lines that begin with >; a mark that no other closes quotes nothing, one that no other
  opens, before another mark, quotes what stands before it; three in a row are code.
* A word is a unit with two letters, or a character of an unspaced script: names of one letter, numbers and signs are in
  every program and formula.
"""

import re

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.contamination.intervals import RUN, Layout, among, columns
from datapipe.contamination.nearby import Places
from datapipe.contamination.windows import looks_like_code
from datapipe.kernels import proof

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff"
WORD = re.compile(rf"(?:(?![{UNSPACED}])[^\W\d_]){{2,}}|[{UNSPACED}]")
QUOTED = re.compile(
    r"“[^“”]*(?:“[^“”]*”[^“”]*)*”|‘(?:[^‘’]|’(?=\w))*’(?!\w)|«[^«»]*»|「[^「」]*」|『[^『』]*』|《[^《》]*》|``(?:[^`'])*''"
    r"|(?<![\w\"])\"(?!\")(?:[^\"\n]|\n(?!\s*\n))+\"(?![\w\"])|(?<![\w'])'(?=\w)(?:[^'\n]|'(?=\w))+'(?![\w'])|^>.*$"
    r"|\A[^“”‘’«»\"']*[\"'”’](?=[.,;:!?)])",
    re.MULTILINE,
)
MARKS = re.compile("[“”‘’«「『《\"'`]|^>", re.MULTILINE)


class Wording:
    """The units of some parts as they are spelled, and which of them are matched in a document."""

    def __init__(self, layout: Layout, texts: pa.ChunkedArray, runs: pa.Table, parts: np.ndarray, docs: np.ndarray):
        """parts: int64, those to be asked about, each once, sorted; docs: their documents."""
        own = texts.take(pa.array(parts))
        own = own.combine_chunks() if isinstance(own, pa.ChunkedArray) else own
        self._texts = dict(zip(parts.tolist(), own.to_pylist(), strict=True))
        bounds, hashes, starts, ends = text.units(own)
        starts, ends = starts.astype(np.uint32), ends.astype(np.uint32)
        proof.without_markup(*text.buffers(own), bounds, starts, ends, hashes)
        self._spans = {
            part: np.stack([starts[low:high], ends[low:high]])
            for part, low, high in zip(parts.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        }
        part, doc = columns(runs, ("part", "doc"))
        chosen = among(part.astype(np.int64), parts) & among(doc, docs)
        self._places = Places(layout, runs.select(list(RUN)).filter(pa.array(chosen)))

    def found(self, part: int, doc: int) -> np.ndarray:
        """bool of each unit of the part: whether a run of the document holds it."""
        held = np.zeros(self._spans[part].shape[1], bool)
        for place in self._places.of(part, doc):
            held[place.low - place.first : place.high - place.first] = True
        return held

    def words(self, part: int, held: np.ndarray | None = None) -> int:
        """How many different words the units have, or those of them that are held."""
        data = self._texts[part].encode()
        starts, ends = self._spans[part] if held is None else self._spans[part][:, held]
        spelled = {
            data[start:end].decode().casefold() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        }
        return sum(WORD.search(one) is not None for one in spelled)

    def is_code(self, part: int) -> bool:
        return looks_like_code(self._texts[part])

    def quoted(self, part: int) -> np.ndarray:
        """int64 of each unit: the number of the quotation that it stands in, from 1 on; 0 for none."""
        own = self._texts[part]
        starts = self._spans[part][0]
        out = np.zeros(len(starts), np.int64)
        for number, match in enumerate(QUOTED.finditer(own), start=1):
            low = len(own[: match.start()].encode())
            first, last = np.searchsorted(starts, [low, low + len(match[0].encode())])
            out[first:last] = number
        return out

    def quotes(self, part: int) -> bool:
        return MARKS.search(self._texts[part]) is not None
