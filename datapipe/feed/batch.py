"""
What a reader gives (Rows), and what a trainer takes (Batch): ids, labels, positions, segments as arrays.

All that is derived follows from the seg_* columns, on first use; nothing is guessed from an id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

if TYPE_CHECKING:
    from datapipe.feed.order import Blocks
    from datapipe.feed.state import Progress


TENSORS = ("input_ids", "labels", "loss_mask", "position_ids", "segment_ids", "cu_seqlens", "sources", "row_ids",
           "n_targets")  # fmt: skip
LONG = ("input_ids", "labels", "position_ids")  # int64 as tensors: embeddings and losses ask for it
IGNORE = -100  # the label of a position that is no target


@dataclass(frozen=True, eq=False)
class Rows:
    """
    k packed rows, as their shards say; nothing in it is derived.

    row_ids:    int64[k]; -1 is an empty row that fills a batch
    input_ids:  int32[k, length], contiguous, perhaps read-only; [k, 0] where only the books were read
    offsets:    int64[k + 1] into the seg_* columns
    seg_len:    int32, seg_doc: int64 (row of fates), seg_start: int32, seg_flags: uint8, seg_source: int16
    mask:       bool[k, length], which tokens may be predicted; None: all
    n_tokens, n_targets: int32[k]
    """

    row_ids: np.ndarray
    input_ids: np.ndarray
    offsets: np.ndarray
    seg_len: np.ndarray
    seg_doc: np.ndarray
    seg_start: np.ndarray
    seg_flags: np.ndarray
    seg_source: np.ndarray
    mask: np.ndarray | None
    n_tokens: np.ndarray
    n_targets: np.ndarray

    def __len__(self) -> int:
        return len(self.row_ids)

    @property
    def length(self) -> int:
        """Ids in a row; 0 where only the books were read."""
        return self.input_ids.shape[1]

    def take(self, index: np.ndarray) -> Self:
        """The rows at int64[n] places, in that order; a place may come twice."""
        counts = np.diff(self.offsets)[index]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        at = np.arange(offsets[-1]) + np.repeat(self.offsets[index] - offsets[:-1], counts)
        return type(self)(
            self.row_ids[index],
            self.input_ids[index],
            offsets,
            self.seg_len[at],
            self.seg_doc[at],
            self.seg_start[at],
            self.seg_flags[at],
            self.seg_source[at],
            None if self.mask is None else self.mask[index],
            self.n_tokens[index],
            self.n_targets[index],
        )

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Rows of one length, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(part.offsets[-1] for part in parts)])
        offsets = [part.offsets[1:] + start for part, start in zip(parts, starts[:-1], strict=True)]
        width = next((part.mask.shape[1] for part in parts if part.mask is not None), None)
        whole = [np.ones((len(part), width or 0), bool) if part.mask is None else part.mask for part in parts]
        rest = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("row_ids", "input_ids", "seg_len", "seg_doc", "seg_start", "seg_flags", "seg_source",
                         "n_tokens", "n_targets")
        }  # fmt: skip
        return cls(
            offsets=np.concatenate([np.zeros(1, np.int64), *offsets]),
            mask=None if width is None else np.concatenate(whole),
            **rest,
        )

    @classmethod
    def empty(cls, k: int, length: int, pad: int = 0) -> Self:
        """k rows of padding alone, which fill a batch."""
        none = {"seg_len": np.int32, "seg_doc": np.int64, "seg_start": np.int32, "seg_flags": np.uint8,
                "seg_source": np.int16}  # fmt: skip
        return cls(
            row_ids=np.full(k, -1, np.int64),
            input_ids=np.full((k, length), pad, np.int32),
            offsets=np.zeros(k + 1, np.int64),
            mask=None,
            n_tokens=np.zeros(k, np.int32),
            n_targets=np.zeros(k, np.int32),
            **{name: np.zeros(0, kind) for name, kind in none.items()},
        )


class _Pieces:
    """
    All rows laid end to end, cut into segments and, where a row is not full, its padding.

    sizes, starts: int64[pieces], how long each is and where it begins
    """

    def __init__(self, rows: Rows):
        self._rows, self._shape = rows, rows.input_ids.shape
        self._free = np.flatnonzero(rows.n_tokens < rows.length)  # rows with padding
        self.sizes = rows.seg_len.astype(np.int64)
        if len(self._free):
            free = np.zeros(len(rows), np.int64)
            free[self._free] = 1
            self._at = np.arange(len(rows.seg_len)) + np.repeat(np.cumsum(free) - free, np.diff(rows.offsets))
            self.sizes = self.column(self.sizes, 0)
            padding = rows.offsets[1:][self._free] + np.arange(len(self._free))
            self.sizes[padding] = rows.length - rows.n_tokens[self._free]
        self.starts = np.cumsum(self.sizes) - self.sizes

    def column(self, values: np.ndarray, padding: int) -> np.ndarray:
        """A value a segment -> a value a piece."""
        if not len(self._free):
            return values
        found = np.full(len(values) + len(self._free), padding, values.dtype)
        found[self._at] = values
        return found

    def spread(self, values: np.ndarray) -> np.ndarray:
        """A value a piece -> a value a token, [rows, length]."""
        return np.repeat(values, self.sizes).reshape(self._shape)

    def pad(self, found: np.ndarray, value: int) -> np.ndarray:
        """[rows, length] with `value` in padding; the same array."""
        for row in self._free:
            found[row, self._rows.n_tokens[row] :] = value
        return found

    def ignore(self, found: np.ndarray, value: int) -> None:
        """Put `value` where the next token is of another piece, or there is none."""
        found.reshape(-1)[self.starts + self.sizes - 1] = value
        self.pad(found, value)


class Readable(Protocol):
    """What a loader needs of a split: dataset.Split, or whatever gives rows by number in the same way."""

    @property
    def name(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def blocks(self) -> "Blocks": ...
    @property
    def dataset_id(self) -> str: ...
    @property
    def tokenizer(self) -> str: ...  # sha256
    @property
    def sources(self) -> Sequence[str]: ...
    @property
    def pad(self) -> int: ...
    @property
    def storage(self) -> str: ...
    def read(self, rows: np.ndarray) -> Rows: ...
    def narrow(self, rows: np.ndarray) -> Rows: ...
    def doc_ids(self, docs: np.ndarray) -> Sequence[str]: ...


class Tensors(dict[str, Any]):
    """
    Tensors by name, and beside them what is no tensor.

    step, progress, max_seqlen: as in Batch
    """

    step: tuple[int, int] | None = None
    progress: "Progress | None" = None
    max_seqlen: int = 0

    @property
    def state(self) -> dict[str, Any] | None:
        """As in Batch."""
        return None if self.progress is None else self.progress.state()


@dataclass(frozen=True, eq=False)
class Batch:
    """
    Packed rows as a trainer takes them; b rows of `length` ids.

    rows:      the columns as stored
    step:      (epoch, global batch), None where no loader made it
    progress:  what was delivered when this batch was
    """

    rows: Rows
    step: tuple[int, int] | None = None
    progress: "Progress | None" = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def length(self) -> int:
        return self.rows.length

    @property
    def state(self) -> dict[str, Any] | None:
        """The loader's state_dict() once this batch is delivered: what to save beside the weights."""
        return None if self.progress is None else self.progress.state()

    @property
    def after(self) -> "Progress":
        """Where the loader that made it stands once it is delivered."""
        assert self.progress is not None, "no loader made it"
        return self.progress

    @property
    def row_ids(self) -> np.ndarray:
        """int64[b]; -1: a row of padding alone that fills the batch."""
        return self.rows.row_ids

    @property
    def input_ids(self) -> np.ndarray:
        """int32[b, length]."""
        return self.rows.input_ids

    @cached_property
    def _pieces(self) -> "_Pieces":
        return _Pieces(self.rows)

    @cached_property
    def loss_mask(self) -> np.ndarray:
        """bool[b, length]: the targets, positions whose next token is learnt."""
        found = np.ones(self.input_ids.shape, bool)
        self._pieces.ignore(found, False)
        if self.rows.mask is not None:
            found[:, :-1] &= self.rows.mask[:, 1:]
        return found

    @cached_property
    def labels(self) -> np.ndarray:
        """int32[b, length]: the next token at targets, -100 elsewhere; already shifted."""
        return self._labels(np.int32)

    def _labels(self, kind: type[np.signedinteger]) -> np.ndarray:
        found = np.empty(self.input_ids.shape, kind)
        found[:, :-1] = self.input_ids[:, 1:]
        if self.rows.mask is None:
            self._pieces.ignore(found, IGNORE)
        else:
            np.copyto(found, IGNORE, where=~self.loss_mask)
        return found

    @cached_property
    def position_ids(self) -> np.ndarray:
        """int32[b, length]: 0, 1, ... in each segment; 0 in padding."""
        return self._positions(np.int32)

    def _positions(self, kind: type[np.signedinteger]) -> np.ndarray:
        found = np.arange(self.input_ids.size, dtype=kind).reshape(self.input_ids.shape)
        found -= self._pieces.spread(self._pieces.starts.astype(kind))
        return self._pieces.pad(found, 0)

    @cached_property
    def segment_ids(self) -> np.ndarray:
        """int32[b, length]: 1, 2, ... in a row; 0 is padding."""
        offsets = self.rows.offsets
        number = np.arange(1, len(self.rows.seg_len) + 1) - np.repeat(offsets[:-1], np.diff(offsets))
        return self._pieces.spread(self._pieces.column(number.astype(np.int32), 0))

    @cached_property
    def sources(self) -> np.ndarray:
        """int16[b, length]: number in the loader's (or split's) `sources`, -1 in padding."""
        return self._pieces.spread(self._pieces.column(self.rows.seg_source, -1))

    @cached_property
    def cu_seqlens(self) -> np.ndarray:
        """int32[segments + 1] of all rows laid end to end; a break at each row, padding is a segment of its own."""
        return np.append(self._pieces.starts, self.input_ids.size).astype(np.int32)

    @cached_property
    def max_seqlen(self) -> int:
        """The longest segment in cu_seqlens."""
        return int(self._pieces.sizes.max(initial=0))

    @property
    def n_targets(self) -> np.ndarray:
        """int32[b]: what a loss is divided by is their sum, over all ranks and micro-batches."""
        return self.rows.n_targets

    @property
    def n_tokens(self) -> np.ndarray:
        """int32[b]: positions that hold a token."""
        return self.rows.n_tokens

    def split(self, rows: int) -> list["Batch"]:
        """Micro-batches of that many rows, the last perhaps shorter; each has the step and state of the whole."""
        places = np.arange(len(self))
        parts = [places[start : start + rows] for start in range(0, len(self), rows)]
        return [Batch(self.rows.take(part), self.step, self.progress) for part in parts]

    @property
    def seg_len(self) -> np.ndarray:
        return self.rows.seg_len

    @property
    def seg_doc(self) -> np.ndarray:
        return self.rows.seg_doc

    @property
    def seg_start(self) -> np.ndarray:
        return self.rows.seg_start

    @property
    def seg_flags(self) -> np.ndarray:
        return self.rows.seg_flags

    @property
    def seg_source(self) -> np.ndarray:
        return self.rows.seg_source

    def torch(self, device: Any = None, names: Sequence[str] = TENSORS) -> Tensors:
        """
        As tensors on `device`, or those of `names` alone: input_ids, labels, position_ids, row_ids int64, loss_mask
        bool, segment_ids, cu_seqlens and n_targets int32, sources int16.  What has its type already shares memory with
        this batch.
        """
        return self._tensors(
            {name: self._wide(name) if name in LONG else getattr(self, name) for name in names}, device
        )

    def _wide(self, name: str) -> np.ndarray:
        """A column as int64, made as such where it is not there yet."""
        made = {"labels": self._labels, "position_ids": self._positions}
        if name in made and name not in self.__dict__:
            return made[name](np.int64)
        return getattr(self, name).astype(np.int64)

    def hf(self, device: Any = None) -> Tensors:
        """
        What models of transformers take: input_ids, position_ids, and labels that are not shifted, for they shift.

        No attention_mask: positions that start again say where a document begins, and a mask of ones would hide it.
        """
        labels = np.full(self.input_ids.shape, IGNORE, np.int64)
        labels[:, 1:] = self.labels[:, :-1]
        ids, positions = self._wide("input_ids"), self._wide("position_ids")
        return self._tensors({"input_ids": ids, "labels": labels, "position_ids": positions}, device)

    def _tensors(self, arrays: dict[str, np.ndarray], device: Any) -> Tensors:
        import torch

        found = Tensors()
        for name, array in arrays.items():
            writable = array if array.flags.writeable else array.copy()  # torch warns of memory it must not write
            tensor = torch.from_numpy(writable)
            found[name] = tensor if device is None else tensor.to(device)
        found.step, found.progress, found.max_seqlen = self.step, self.progress, self.max_seqlen
        return found
