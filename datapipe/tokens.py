"""
Tokenizing: text is text, and control tokens come from the manifest only.

A tokenizer is a tokenizer.json, from a file or trained here.  Texts give ids without control tokens: special tokens
that a text spells are encoded as text, and where the vocabulary itself holds such a word, the model is given the word
under a name that no text can have meant.  What the tables hold is the ids of each document; bos, eos and the limit of
tokens are laid on when rows are written, so changing them encodes nothing again.
"""

import hashlib
import itertools
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# work units are the threads; read when the library is first used
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from datapipe import derive, units
from datapipe.derive import Derivation
from datapipe.documents import Documents, Verdict
from datapipe.errors import DataError, ManifestError
from datapipe.keyed import keyed_each
from datapipe.manifest import Manifest, TokenizerFile, TokenizerTrain
from datapipe.pieces import Ids, Pieces, borders, widths
from datapipe.spill import Spill
from datapipe.text import buffers
from datapipe.units import Unit

VERSION = 1
TRAIN_VERSION = 1
FILE = "tokenizer.json"
LIBRARIES = ("tokenizers",)
SCHEMA = pa.schema([("n", pa.int32()), ("ids", pa.list_(pa.int32()))])
BATCH_BYTES = 1 << 18  # of text in one call: the library holds about 150 bytes for each token of it
BUCKET_BYTES = 1 << 24  # of text to train on that are in memory at a time
ROWS = 512  # documents in a row group of ids
CONTROLS = ("eos", "bos", "pad")
Special = tuple[str, int]  # text and id


@dataclass(frozen=True)
class Tokenizer:
    """
    data:          the tokenizer.json as it is used and goes into the build
    vocab_size:    entries of the vocabulary, added tokens included; ids may have gaps, so widths go by max_id
    eos, bos, pad: (text, id) as the manifest names them
    added_tokens:  {token, id, special} in order of id
    """

    data: bytes
    sha256: str
    vocab_size: int
    max_id: int
    eos: Special | None
    bos: Special | None
    pad: Special | None
    added_tokens: tuple[dict[str, Any], ...]
    encoder: "Encoder" = field(repr=False, compare=False)

    @property
    def pad_id(self) -> int:
        """What fills the rest of a row: pad, else eos, else 0."""
        special = self.pad or self.eos
        return special[1] if special else 0

    @property
    def around(self) -> int:
        """Control tokens around each document."""
        return (self.eos is not None) + (self.bos is not None)

    def encode(self, texts: pa.Array | pa.ChunkedArray | Sequence[str]) -> Ids:
        """(offsets int64[n + 1], ids int32): the ids of each text, without control tokens."""
        return self.encoder.encode(texts)

    @property
    def widths(self) -> np.ndarray | None:
        """int32, bytes of text that each id stands for; null where ids do not spell the bytes of a text."""
        return self.encoder.widths

    def record(self) -> dict[str, Any]:
        """As manifest.json names it."""
        controls = {name: special and {"token": special[0], "id": special[1]} for name, special in self._specials()}
        head = {"sha256": self.sha256, "vocab_size": self.vocab_size, "max_id": self.max_id}
        return head | controls | {"added_tokens": list(self.added_tokens)}

    def _specials(self) -> list[tuple[str, Special | None]]:
        return [("eos", self.eos), ("bos", self.bos), ("pad", self.pad)]


class Encoder:
    """
    The library's tokenizer, set so that text is text; threads share it, and each has its own table of pieces.

    spec:     a tokenizer.json
    hidden:   words and added tokens of it that no text may reach: they are known here by their name between two NULs
    control:  further ids that no text may give
    """

    def __init__(self, spec: dict[str, Any], hidden: Iterable[str], control: Iterable[int]):
        names = {name: f"\0{name}\0" for name in sorted(hidden)}
        spec = _renamed(spec, names)
        self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # is not kept in the file
        vocab = self._tokenizer.get_vocab()
        away = {vocab[name] for name in names.values()}
        self.settings = {"hidden": list(names), "control": sorted(set(control) - away)}  # what decides the ids
        self._control = np.array(sorted(away.union(control)), np.int32)
        self._border = borders(spec)
        self.widths = widths(spec, vocab)
        self._local = threading.local()

    def encode(self, texts: pa.Array | pa.ChunkedArray | Sequence[str]) -> Ids:
        """As Tokenizer.encode; a text that gives the id of a control token is a DataError."""
        if self._border is None:
            offsets, ids = self.plain(texts if isinstance(texts, Sequence) else texts.to_pylist())
        else:
            if not hasattr(self._local, "pieces"):
                self._local.pieces = Pieces(self._border, self.plain, self.widths)
            array = pa.array(texts, pa.large_string()) if isinstance(texts, Sequence) else texts
            offsets, ids = self._local.pieces.encode(*buffers(array))
        if len(self._control) and np.isin(ids, self._control).any():
            name = str(self._tokenizer.id_to_token(int(ids[np.isin(ids, self._control)][0]))).strip("\0")
            raise DataError(
                f"tokenizer: a text gives the id of the control token {name!r}, so its end could not be told from "
                "text; name a token that the tokenizer does not make from text"
            )
        return offsets, ids

    def plain(self, texts: Sequence[str]) -> Ids:
        """By the library alone, a bounded batch at a time; no text is cut."""
        sizes, found = [], []
        for batch in _batches(texts):
            ids = [encoding.ids for encoding in self._call(batch)]
            here = list(map(len, ids))
            found.append(np.fromiter(itertools.chain.from_iterable(ids), np.int32, sum(here)))
            sizes += here
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        return offsets, np.concatenate(found) if found else np.empty(0, np.int32)

    def _call(self, batch: list[str]) -> list[Any]:
        try:
            return self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        except Exception as error:
            raise DataError(f"tokenizer: cannot encode a text: {error}") from error


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch, held = [], 0
    for text in texts:
        if batch and held + len(text) > BATCH_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(text)
        held += len(text) + 16
    if batch:
        yield batch


def check(manifest: Manifest) -> Tokenizer | None:
    """The tokenizer of a file, found fit before any work; None where none is asked for or it is yet to be trained."""
    spec = manifest.tokenizer
    if not isinstance(spec, TokenizerFile):
        return None
    path = manifest.resolve(spec.file)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ManifestError(f"{manifest.path}: tokenizer.file: cannot read {path}: {error.strerror}") from error
    return load(data, spec, str(path))


def load(data: bytes, control: TokenizerFile | TokenizerTrain, where: str) -> Tokenizer:
    """data: a tokenizer.json; control: names of eos, bos, pad; where: what messages call it."""
    try:
        spec = json.loads(data)
        known = tokenizers.Tokenizer.from_str(data.decode()).get_vocab()
    except Exception as error:
        raise DataError(
            f"{where}: is no tokenizer.json that tokenizers {units.library('tokenizers')} reads: {error}"
        ) from error
    if spec["model"].get("dropout"):
        raise ManifestError(
            f"{where}: model.dropout is {spec['model']['dropout']}: ids would be left to chance; set it to null"
        )
    found = {name: _special(known, name, getattr(control, name), where) for name in CONTROLS}
    added = sorted(spec["added_tokens"], key=lambda token: token["id"])
    return Tokenizer(
        data, hashlib.sha256(data).hexdigest(), len(known), max(known.values(), default=0), **found,
        added_tokens=tuple({"token": one["content"], "id": one["id"], "special": one["special"]} for one in added),
        encoder=_encoder(spec, [found["eos"], found["bos"]], where),
    )  # fmt: skip


def _special(known: dict[str, int], name: str, text: str | None, where: str) -> Special | None:
    if text is None:
        return None
    if text not in known:
        raise ManifestError(
            f"tokenizer.{name}: {text!r} is not in the vocabulary of {where}; name a token that is, or null"
        )
    return text, known[text]


def _encoder(spec: dict[str, Any], around: list[Special | None], where: str) -> Encoder:
    """
    The library's tokenizer with control tokens out of the reach of text.

    Of special tokens the library sees to it that a text does not match them as such.  But a vocabulary may hold them
    as words (WordLevel, Unigram), so they get other names.  The unknown token stays.
    """
    control = {special[0]: special[1] for special in around if special}
    special = {token["content"] for token in spec["added_tokens"] if token["special"]}
    unknown = spec["model"].get("unk_token")
    try:
        return Encoder(spec, (special | set(control)) - {unknown}, control.values())
    except Exception as error:
        raise ManifestError(
            f"{where}: {', '.join(map(repr, sorted(control)))}: the tokenizer makes this control token from text "
            f"({error}); name one that stands for itself, such as a special token"
        ) from error


def _renamed(spec: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The tokenizer.json with words and added tokens under other names, all ids as they were."""
    vocab = spec["model"].get("vocab", {})
    if isinstance(vocab, dict):
        vocab = {names.get(word, word): number for word, number in vocab.items()}
    else:
        vocab = [[names.get(word, word), score] for word, score in vocab]
    added = [token | {"content": names.get(token["content"], token["content"])} for token in spec["added_tokens"]]
    return spec | {"model": spec["model"] | {"vocab": vocab}, "added_tokens": added}


def trained(manifest: Manifest, docs: Documents) -> Tokenizer | None:
    """The tokenizer trained on training documents that are alive; None where none is to be trained, see `check`."""
    spec = manifest.tokenizer
    if not isinstance(spec, TokenizerTrain):
        return None
    chosen = _choose(docs, spec.train.sample)
    if not len(chosen):
        raise DataError(
            "tokenizer.train: no training document is left to train on; see which stage dropped them, or set them apart"
        )
    names = list(dict.fromkeys(name for name in (spec.eos, spec.bos, spec.pad) if name is not None))
    settings = {"vocab_size": spec.train.vocab_size, "special": names}
    shas = {part.number: part.sha256 for part in docs.parts}
    # what the texts are, by part and row: two texts may differ in white space and have one text_hash
    texts = units.digest([[shas[row["part"]], row["row"]] for row in chosen.select(["part", "row"]).to_pylist()])

    def work(folder: Path) -> dict:
        data = train(_texts(docs, chosen), spec.train.vocab_size, names)
        (folder / FILE).write_bytes(data)
        return {"documents": len(chosen)}

    unit = Unit("train_tokenizer", TRAIN_VERSION, settings, [texts], LIBRARIES, work)
    done = units.run(docs.work.store, [unit], 1)[0]
    return load(done.path(FILE).read_bytes(), spec, "the trained tokenizer")


def train(texts: Iterable[str], vocab_size: int, special: list[str]) -> bytes:
    """A byte-level BPE as tokenizer.json.  Ties go to what came first, so the order of texts decides bytes."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str(pretty=True).encode()


def _choose(docs: Documents, sample: int) -> pa.Table:
    """(part, row, place, before): training documents in order of hash until they have `sample` bytes."""
    db = docs.work.db
    db.execute("create or replace table tokenizer_keys (doc bigint, key ubigint)")
    query = "select doc, hex32(doc_id) as doc_id from documents where place is null and split = 'train' order by doc"
    with db.cursor() as cursor:
        for batch in cursor.sql(query).to_arrow_reader(65_536):
            keys = pa.array(keyed_each("tokenizer", None, batch["doc_id"].to_pylist()), pa.uint64())
            docs.work.insert("tokenizer_keys", pa.table({"doc": batch["doc"], "key": keys}))
    return db.sql(
        "select part, row, (row_number() over (order by key, doc) - 1)::bigint as place, before from ("
        "  select *, (sum(bytes) over (order by key, doc) - bytes)::bigint as before"
        "  from tokenizer_keys join documents using (doc)"
        ") where before < ? order by place",
        params=[sample],
    ).to_arrow_table()


def _texts(docs: Documents, chosen: pa.Table) -> Iterator[str]:
    """The chosen texts in order, a bucket of them in memory at a time."""
    buckets = chosen["before"].to_numpy() // BUCKET_BYTES
    places, parts, rows = (chosen[name].to_numpy() for name in ("place", "part", "row"))
    schema = pa.schema([("place", pa.int64()), ("text", pa.large_string())])
    spill = Spill(docs.work.folder("tokenizer-texts"), int(buckets.max()) + 1, schema)
    for part in docs.parts:
        here = np.flatnonzero(parts == part.number)
        here = here[np.argsort(rows[here])]
        for found, table in part.batches(["text"], rows[here].astype(np.int32)):
            at = here[np.searchsorted(rows[here], found)]
            for bucket in np.unique(buckets[at]):
                mine = pa.array(np.flatnonzero(buckets[at] == bucket))
                columns = [pa.array(places[at]).take(mine), table["text"].combine_chunks().take(mine)]
                spill.append(int(bucket), pa.record_batch(columns, schema=schema))
    for bucket in range(spill.buckets):
        yield from spill.read(bucket).sort_by("place")["text"].to_pylist()
        spill.drop(bucket)


@dataclass(frozen=True)
class Tokenized:
    """
    The ids of every document that is alive: units by part number, columns row, n, ids (list<int32>, no control tokens).

    In DuckDB lies `counted` (doc, tokens): with bos and eos, before max_document_tokens; 0 where a text gives no ids.
    """

    dones: dict[int, list[units.Done]]
    verdict: Verdict


def tokenize(docs: Documents, tokenizer: Tokenizer) -> Tokenized:
    """Encode what is alive and was never encoded, count it, and judge: a document without ids is `no tokens`."""

    def compute(table: pa.Table) -> list[pa.Array]:
        offsets, ids = tokenizer.encode(table["text"])
        counts = np.diff(offsets).astype(np.int32)
        return [pa.array(counts), pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(ids))]

    settings = {"tokenizer": tokenizer.sha256, "encoder": tokenizer.encoder.settings}
    what = Derivation("tokens", VERSION, settings, LIBRARIES, SCHEMA, compute, row_group=ROWS)
    wanted = {part.number: docs.alive(part)[0] for part in docs.parts}
    dones = derive.derive(what, docs, {number: rows for number, rows in wanted.items() if len(rows)})
    _count(docs, dones, tokenizer.around)
    docs.work.db.execute(
        "create or replace table no_tokens as select doc, 'no tokens' as rule, 0.0::double as value, "
        "null::varchar as evidence, true as decides from counted where tokens = 0"
    )
    return Tokenized(dones, Verdict(drops="no_tokens"))


def _count(docs: Documents, dones: dict[int, list[units.Done]], around: int) -> None:
    """Fill `counted`, part by part."""
    docs.work.db.execute("create or replace table counted (doc bigint, tokens bigint)")
    for part in docs.parts:
        rows, found = docs.alive(part)
        counts = np.zeros(part.rows, np.int64)
        for done in dones.get(part.number, []):
            table = pq.read_table(done.path(derive.FILE), columns=["row", "n"], page_checksum_verification=True)
            counts[table["row"].to_numpy()] = table["n"].to_numpy()
        tokens = counts[rows]
        docs.work.insert("counted", pa.table({"doc": found, "tokens": tokens + around * (tokens > 0)}))
