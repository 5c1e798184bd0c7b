"""Exports: the published layouts byte by byte, there and back, what is refused, and what a build knows of them."""

import gzip
import hashlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import datasets
import exported
import numpy as np
import pytest
import synthetic
from exported import Doc

from datapipe import cli
from datapipe.build_manifest import consumers
from datapipe.errors import DataError, IntegrityError, ManifestError
from datapipe.feed import dataset
from datapipe.feed.batch import Rows
from datapipe.feed.exports import documents, export, masked, megatron, read_export
from datapipe.feed.exports.samples import samples

WRITTEN = ("nanogpt", "megatron", "olmo", "datatrove")


# --- byte by byte ------------------------------------------------------------------------------------------------

# three documents, rows of four: the first is cut into [2 5 6 7] and [7 8 1], its 7 repeated as context
LONG = Doc((2, 5, 6, 7, 8, 1), (True, False, True, True, False, True))
SHORT = Doc((2, 9, 1), None, 1)
HELD = Doc((2, 4, 1), None, 1, "validation")


def tiny(folder: Path, *, masks: bool = False, vocabulary: int = 300, storage: str = "list") -> exported.Made:
    """One shard a split; which of the two documents comes first is the packing's to say."""
    docs = [LONG if masks else Doc(LONG.ids), SHORT, HELD]
    return exported.build(folder, docs, length=4, shards=1, vocabulary=vocabulary, storage=storage)


def stream(made: exported.Made, code: str, split: str = "train") -> bytes:
    """The ids of a split, packed as `code` says."""
    ids = [token for doc in made.flat(split) for token in doc.ids]
    return struct.pack(f"<{len(ids)}{code}", *ids)


def files(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert json.loads(found.pop("export.json"))["files"] == [
        {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in sorted(found.items())
    ]
    return found


def test_nanogpt_is_uint16_and_nothing_else(tmp_path):
    made = tiny(tmp_path)
    export(made.path, "nanogpt", tmp_path / "out")
    assert files(tmp_path / "out") == {"train.bin": stream(made, "H"), "val.bin": b"\2\0\4\0\1\0"}


@pytest.mark.parametrize("vocabulary, code, type_code", [(300, "H", 8), (65_499, "H", 8), (65_500, "i", 4)])
def test_megatron_bytes(tmp_path, vocabulary, code, type_code):
    made = tiny(tmp_path, vocabulary=vocabulary)
    export(made.path, "megatron", tmp_path / "out")
    width = struct.calcsize(code)
    lengths = [len(doc.ids) for doc in made.flat()]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, type_code, 2, 3)
    index += struct.pack("<2i", *lengths) + struct.pack("<2q", 0, lengths[0] * width) + struct.pack("<3q", 0, 1, 2)
    held = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, type_code, 1, 2) + struct.pack("<iqqq", 3, 0, 0, 1)
    assert files(tmp_path / "out") == {
        "train.bin": stream(made, code), "train.idx": index,
        "validation.bin": stream(made, code, "validation"), "validation.idx": held,
    }  # fmt: skip


@pytest.mark.parametrize("vocabulary, code", [(256, "B"), (257, "H"), (65_536, "H"), (65_537, "I")])
@pytest.mark.parametrize("masks", [False, True])
def test_olmo_bytes(tmp_path, vocabulary, code, masks):
    made = tiny(tmp_path, vocabulary=vocabulary, masks=masks)
    export(made.path, "olmo", tmp_path / "out")
    found = files(tmp_path / "out")
    borders, lines = 0, []
    for doc in made.flat():
        number = 0 if len(doc.ids) == 6 else 1
        lines.append(f"{borders},{borders + len(doc.ids)},{number},{exported.SOURCES[number]}\n")
        borders += len(doc.ids)
    packed = found.pop("train/part-00000.csv.gz")
    assert gzip.decompress(packed).decode() == "".join(lines)
    assert packed[3:10] == bytes(5) + packed[8:10]  # no name, no time
    assert gzip.decompress(found.pop("validation/part-00000.csv.gz")) == b"0,3,2,web\n"
    expected = {
        "train/part-00000.npy": stream(made, code),
        "validation/part-00000.npy": stream(made, code, "validation"),
    }
    if masks:
        bits = [bit for doc in made.flat() for bit in doc.mask or (True,) * 3]
        expected["train_label_mask/part-00000.npy"] = bytes(bits)
    assert found == expected


@pytest.mark.parametrize("vocabulary, code", [(300, "H"), (65_536, "H"), (65_537, "I")])
@pytest.mark.parametrize("masks", [False, True])
def test_datatrove_bytes(tmp_path, vocabulary, code, masks):
    made = tiny(tmp_path, vocabulary=vocabulary, masks=masks)
    export(made.path, "datatrove", tmp_path / "out")
    first = len(made.flat()[0].ids)
    about = f"sha256:{'5' * 64}|{struct.calcsize(code)}\n".encode()
    expected = {
        "train/part-00000.ds": stream(made, code),
        "train/part-00000.ds.index": struct.pack("<2Q", first, 9),
        "train/part-00000.ds.metadata": about + b"9\n9.00 T",
        "validation/part-00000.ds": stream(made, code, "validation"),
        "validation/part-00000.ds.index": struct.pack("<Q", 3),
        "validation/part-00000.ds.metadata": about + b"3\n3.00 T",
    }
    if masks:
        expected["train/part-00000.ds.loss"] = bytes(bit for doc in made.flat() for bit in doc.mask or (True,) * 3)
    assert files(tmp_path / "out") == expected


# --- there and back ----------------------------------------------------------------------------------------------

BUILDS = {
    "cut documents, copies": {},
    "masks": {"masks": True},
    "concat": {"packing": "concat", "masks": True},
    "binary": {"storage": "binary"},
    "binary of 32 bits, masks": {"storage": "binary", "vocabulary": 70_000, "masks": True},
    "one shard": {"shards": 1, "most": 1},
    "no bos": {"bos": None},
    "a row a document": {"length": 128},
    "rows of two": {"length": 2, "masks": True},
}


def some(folder: Path, case: dict, name: str = "made") -> exported.Made:
    given = {key: case[key] for key in ("masks", "vocabulary", "bos") if key in case}
    docs = exported.some(40, **given)
    if "most" in case:
        docs = [Doc(doc.ids, doc.mask, doc.source, doc.split) for doc in docs]
    rest = {key: case[key] for key in ("packing", "storage", "vocabulary", "length", "shards") if key in case}
    return exported.build(folder, docs, name=name, **rest)


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("case", BUILDS.values(), ids=BUILDS)
@pytest.mark.parametrize("block", [1, documents.BLOCK])
def test_there_and_back(tmp_path, monkeypatch, case, form, block):
    monkeypatch.setattr(documents, "BLOCK", block)  # 1: every document is a block
    monkeypatch.setattr(masked, "ONES", masked.ONES[:7])
    monkeypatch.setattr(megatron.formats, "INDEX", 5)
    made = some(tmp_path, case)
    if form == "nanogpt" and case.get("vocabulary", 0) > 65_535:
        with pytest.raises(ManifestError, match=r"70,000 does not fit into its ids.*--to megatron, olmo or datatrove"):
            export(made.path, form, tmp_path / "out")
        return
    told = export(made.path, form, tmp_path / "out")
    for split in ("train", "validation"):
        docs = made.flat(split)
        found = list(read_export(form, tmp_path / "out", split=split))
        if form == "nanogpt":
            docs = [Doc(tuple(token for doc in docs for token in doc.ids))]
        assert [tuple(one.ids.tolist()) for one in found] == [doc.ids for doc in docs]
        has_masks = form in {"olmo", "datatrove"} and any(doc.mask for doc in docs)
        masks = [None if one.mask is None else tuple(one.mask.tolist()) for one in found]
        assert masks == [(doc.mask or (True,) * len(doc.ids)) if has_masks else None for doc in docs]
        books = told.splits[split]
        assert books["documents"] == len(made.flat(split))
        assert books["tokens"] == books["documents"] + books["targets"] + books["masked"]
        assert books["masked"] == sum(len(d.mask) - sum(d.mask[1:]) - 1 for d in made.flat(split) if d.mask)
        if case.get("packing") != "concat":
            assert books["targets"] == books["targets_in_rows"]


def test_a_document_twice_in_a_shard_is_two_documents(tmp_path):
    """Builds of datapipe never do that; another's may."""
    made = synthetic.build(tmp_path)
    export(made.path, "megatron", tmp_path / "out")
    found = [one.ids.tolist() for one in read_export("megatron", tmp_path / "out")]
    assert len(found) == 4
    assert sum(len(ids) == 31 for ids in found) == 2


def test_a_cut_document_twice_in_a_shard():
    rows = piecewise([[(7, 0, 3, 1)], [(7, 0, 3, 1)], [(7, 2, 2, 6)], [(7, 2, 2, 6)]])
    (found,) = documents.whole(rows, "x")
    assert found.ids.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert found.offsets.tolist() == [0, 4, 8]


def piecewise(given: list[list[tuple[int, int, int, int]]], length: int = 4) -> Rows:
    """Rows of pieces (document, start, size, flags); the id of a token is its place in its document."""
    flat = [piece for row in given for piece in row]
    ids = np.zeros((len(given), length), np.int32)
    for n, row in enumerate(given):
        values = [token for _, start, size, _ in row for token in range(start, start + size)]
        ids[n, : len(values)] = values
    doc, start, size, flags = (np.array(column) for column in zip(*flat, strict=True))
    counts = [len(row) for row in given]
    return Rows(
        np.arange(len(given)), ids, np.cumsum([0, *counts]), size.astype(np.int32), doc.astype(np.int64),
        start.astype(np.int32), flags.astype(np.uint8), np.zeros(len(flat), np.int16), None,
        np.array([sum(piece[2] for piece in row) for row in given], np.int32),
        np.array([sum(piece[2] - 1 for piece in row) for row in given], np.int32),
    )  # fmt: skip


WRONG = {
    "a start that is none": [[(7, 0, 3, 0)], [(7, 2, 2, 6)]],
    "a start in the middle": [[(7, 0, 3, 1)], [(7, 2, 2, 7)]],
    "the end is missing": [[(7, 0, 3, 1)]],
    "the start is missing": [[(7, 2, 2, 6)]],
    "a gap": [[(7, 0, 2, 1)], [(7, 3, 1, 2)]],
    "an overlap": [[(7, 0, 3, 1)], [(7, 2, 2, 2)]],
    "it ends before it ends": [[(7, 0, 3, 3)], [(7, 2, 2, 6)]],
}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_pieces_that_do_not_fit_together(given):
    with pytest.raises(IntegrityError, match=r"shard-x: the pieces of document 7 do not fit together"):
        list(documents.whole(piecewise([[(6, 0, 2, 3)], *given]), "shard-x"))


def test_a_repeated_token_that_is_another_one():
    rows = piecewise([[(7, 0, 3, 1)], [(7, 2, 2, 6)]])
    rows.input_ids[1, 0] = 9
    with pytest.raises(IntegrityError, match="repeated as context"):
        list(documents.whole(rows, "x"))


@pytest.mark.parametrize("form", ["olmo", "datatrove"])
@pytest.mark.parametrize("where", [0, 1, 2])
def test_one_shard_with_a_mask_gives_every_shard_one(tmp_path, monkeypatch, form, where):
    monkeypatch.setattr(masked, "ONES", masked.ONES[:2])
    docs = [Doc((2, 5, 6, 1), (True, False, True, True) if n == where else None) for n in range(3)]
    made = exported.build(tmp_path, docs, length=4, shards=3)
    export(made.path, form, tmp_path / "out")
    found = list(read_export(form, tmp_path / "out"))
    assert [one.mask.tolist() for one in found if one.mask is not None] == [
        list(doc.mask or (True,) * 4) for doc in made.flat()
    ]


def test_documents_come_in_order_of_first_appearance():
    rows = piecewise([[(9, 2, 2, 6), (4, 0, 1, 3)], [(3, 0, 1, 3), (9, 0, 3, 1)]])
    (found,) = documents.whole(rows, "x")
    assert found.doc.tolist() == [9, 4, 3]


def test_two_exports_are_equal_byte_for_byte(tmp_path):
    made = some(tmp_path, {"masks": True})
    for form in WRITTEN:
        for turn in "ab":
            export(made.path, form, tmp_path / form / turn)
        a, b = (tmp_path / form / turn / "export.json" for turn in "ab")
        assert a.read_bytes() == b.read_bytes()  # it has the digests of all files


# --- files of others ---------------------------------------------------------------------------------------------


def index(code=8, lengths=(2, 3), pointers=(0, 4), borders=(0, 1, 2), modes=b"", version=1, magic=b"MMIDIDX\0\0"):
    """A .idx, field by field."""
    head = magic + struct.pack("<QBQQ", version, code, len(lengths), len(borders))
    return (head + struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(pointers)}q", *pointers)
            + struct.pack(f"<{len(borders)}q", *borders) + modes)  # fmt: skip


OTHERS = {
    "as ours": (index(), "H", [[1, 2], [3, 4, 5]]),
    "a document of two sequences": (index(borders=(0, 2)), "H", [[1, 2, 3, 4, 5]]),
    "sequences in another order": (index(lengths=(3, 2), pointers=(4, 0)), "H", [[3, 4, 5], [1, 2]]),
    "an empty document": (index(borders=(0, 0, 2)), "H", [[], [1, 2, 3, 4, 5]]),
    "modes": (index(modes=b"\0\1"), "H", [[1, 2], [3, 4, 5]]),
    "int32": (index(4, pointers=(0, 8)), "i", [[1, 2], [3, 4, 5]]),
    "int64": (index(5, pointers=(0, 16)), "q", [[1, 2], [3, 4, 5]]),
    "uint8": (index(1, pointers=(0, 2)), "B", [[1, 2], [3, 4, 5]]),
}


@pytest.mark.parametrize("idx, code, expected", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("name", ["train", "train.bin", "train.idx", ""])
def test_megatron_of_others_by_the_type_in_the_header(tmp_path, idx, code, expected, name):
    (tmp_path / "train.idx").write_bytes(idx)
    (tmp_path / "train.bin").write_bytes(struct.pack(f"<5{code}", 1, 2, 3, 4, 5))
    assert [one.ids.tolist() for one in read_export("megatron", tmp_path / name)] == expected


DAMAGED = {
    "another magic": (index(magic=b"MMIDIDX\0\1"), "is no index"),
    "another version": (index(version=2), "version 2"),
    "an unknown type": (index(9), "type 9"),
    "cut": (index()[:-1], "are not those of 2 sequences"),
    "a part of a header": (b"MMIDIDX", "a header has 34"),
    "nothing": (b"", "a header has 34"),
    "beyond the end": (index(pointers=(0, 6)), "points beyond the 5 ids"),
    "before the start": (index(pointers=(-2, 4)), "that no sequence has"),
    "between two ids": (index(pointers=(0, 3)), "that no sequence has"),
    "falling borders": (index(borders=(0, 2, 1)), "do not rise"),
    "borders of another file": (index(borders=(0, 1, 3)), "do not rise"),
}


@pytest.mark.parametrize("idx, said", DAMAGED.values(), ids=DAMAGED)
def test_megatron_damaged(tmp_path, idx, said):
    (tmp_path / "train.idx").write_bytes(idx)
    (tmp_path / "train.bin").write_bytes(struct.pack("<5H", 1, 2, 3, 4, 5))
    with pytest.raises(DataError, match=said):
        list(read_export("megatron", tmp_path))


def test_files_without_borders_are_a_document_or_are_cut_by_the_eos_that_is_named(tmp_path):
    (tmp_path / "train.bin").write_bytes(struct.pack("<6H", 5, 1, 6, 7, 1, 8))
    (tmp_path / "x.npy").write_bytes(struct.pack("<6I", 5, 1, 6, 7, 1, 8))
    for form, dtype in (("nanogpt", None), ("olmo", "uint32")):
        assert [one.ids.tolist() for one in read_export(form, tmp_path, dtype=dtype)] == [[5, 1, 6, 7, 1, 8]]
        cut = [one.ids.tolist() for one in read_export(form, tmp_path, eos=1, dtype=dtype)]
        assert cut == [[5, 1], [6, 7, 1], [8]]


def test_headerless_ids_have_the_type_that_is_named_or_recorded(tmp_path):
    (tmp_path / "x.npy").write_bytes(bytes(6))
    with pytest.raises(DataError, match="does not say the type of its ids"):
        list(read_export("olmo", tmp_path / "x.npy"))
    with pytest.raises(DataError, match="no whole number of uint32"):
        list(read_export("olmo", tmp_path / "x.npy", dtype="uint32"))
    with pytest.raises(ManifestError, match="expected an integer type"):
        read_export("olmo", tmp_path / "x.npy", dtype="uint23")
    made = tiny(tmp_path / "builds")
    export(made.path, "olmo", tmp_path / "out")
    for path in ("train", "train/part-00000.npy"):  # the type is in the export.json above
        assert len(list(read_export("olmo", tmp_path / "out" / path))) == 2


DS = {
    "two bytes, as old releases say": (b"gpt2\n5\n5.00 T", "H", None),
    "two bytes": (b"gpt2|2\n5\n5.00 T", "H", None),
    "four bytes": (b"a|b|4\n5\n5.00 T", "I", None),
    "named": (None, "I", "uint32"),
}


@pytest.mark.parametrize("about, code, dtype", DS.values(), ids=DS)
def test_datatrove_of_others(tmp_path, about, code, dtype):
    (tmp_path / "00000_x.ds").write_bytes(struct.pack(f"<5{code}", 1, 2, 3, 4, 5))
    (tmp_path / "00000_x.ds.index").write_bytes(struct.pack("<2Q", 2, 5))
    (tmp_path / "00000_x.ds.loss").write_bytes(b"\1\0\1\1\0")
    if about:
        (tmp_path / "00000_x.ds.metadata").write_bytes(about)
    found = list(read_export("datatrove", tmp_path, dtype=dtype))
    assert [(one.ids.tolist(), one.mask.tolist()) for one in found if one.mask is not None] == [
        ([1, 2], [True, False]),
        ([3, 4, 5], [True, True, False]),
    ]


@pytest.mark.parametrize("name, data, said", [
    ("x.ds.index", struct.pack("<2Q", 2, 4), "of another file"),
    ("x.ds.index", struct.pack("<3Q", 3, 2, 5), "of another file"),
    ("x.ds.loss", b"\1", "of another file"),
    ("x.ds.metadata", b"gpt2|3\n", "known are 2 and 4"),
    ("x.ds.metadata", None, "name it: dtype="),
    ("x.ds.index", None, "no such file"),
])  # fmt: skip
def test_datatrove_damaged(tmp_path, name, data, said):
    good = {"x.ds": struct.pack("<5H", 1, 2, 3, 4, 5), "x.ds.index": struct.pack("<2Q", 2, 5),
            "x.ds.metadata": b"gpt2|2\n"}  # fmt: skip
    for path, bytes_ in (good | {name: data}).items():
        if bytes_ is not None:
            (tmp_path / path).write_bytes(bytes_)
    with pytest.raises(DataError, match=said):
        list(read_export("datatrove", tmp_path))


@pytest.mark.parametrize("lines", ["0,2,x\n3,5,x\n", "0,2,x\n2,4,x\n", "a,b\n", "5\n", None])
def test_olmo_damaged_borders(tmp_path, lines):
    (tmp_path / "x.npy").write_bytes(struct.pack("<5H", 1, 2, 3, 4, 5))
    data = b"\x1f\x8b\x08 no gzip" if lines is None else gzip.compress(lines.encode())
    (tmp_path / "x.csv.gz").write_bytes(data)
    with pytest.raises(DataError, match=r"does not begin where|of another file|is no gzip of lines"):
        list(read_export("olmo", tmp_path, dtype="uint16"))


# --- rows for other packages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("masks", [False, True])
def test_samples_are_the_rows(tmp_path, masks):
    made = some(tmp_path, {"masks": masks})
    with dataset.open(made.path) as data:
        rows = data.train.read(np.arange(data.train.rows))
        found = list(samples(rows))
    assert [one["row_id"] for one in found] == list(range(len(rows)))
    for n, one in enumerate(found):
        segments = slice(rows.offsets[n], rows.offsets[n + 1])
        assert one["input_ids"].tolist() == rows.input_ids[n].tolist()
        assert one["input_ids"].dtype == np.int32
        assert one["seg_doc"].tolist() == rows.seg_doc[segments].tolist()
        assert one["n_tokens"] == one["seg_len"].sum()
        bits = np.unpackbits(np.frombuffer(one["loss_mask"], np.uint8), bitorder="little", count=rows.length)
        assert one["loss_mask"] == b"" if rows.mask is None else bits.tolist() == rows.mask[n].tolist()


@pytest.mark.parametrize("form, package, pip", [("mds", "streaming", "mosaicml-streaming"), ("litdata",) * 3])
def test_a_package_that_is_not_here_is_named(tmp_path, monkeypatch, form, package, pip):
    made = tiny(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ManifestError, match=f"written by the package {package}, which is not here: pip install {pip}"):
        export(made.path, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form, reader", [("mds", "streaming.StreamingDataset"), ("litdata", "litdata.StreamingD")])
def test_rows_are_read_by_their_own_package(tmp_path, form, reader):
    with pytest.raises(ManifestError, match=reader):
        read_export(form, tmp_path)


def test_datasets_reads_a_build_as_it_is(tmp_path):
    """By the configs in its README.md: splits, and columns; storage `binary` comes as bytes, as its card says."""
    made = some(tmp_path, {"masks": True})
    found = datasets.load_dataset(str(made.path), cache_dir=str(tmp_path / "cache"))
    with dataset.open(made.path) as data:
        for split in ("train", "validation"):
            rows = data.split(split).read(np.arange(data.split(split).rows))
            assert found[split]["row_id"][:] == rows.row_ids.tolist()
            assert found[split]["input_ids"][:] == rows.input_ids.tolist()
            assert [n for row in found[split]["seg_len"][:] for n in row] == rows.seg_len.tolist()


# --- whole or not there ------------------------------------------------------------------------------------------


def shard(made: exported.Made) -> Path:
    return made.path / "train/shard-00001.parquet"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


SPOILED = {
    "a flipped byte": flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
@pytest.mark.parametrize("form", WRITTEN)
def test_a_spoiled_shard_is_named_and_nothing_is_left(tmp_path, capsys, spoil, form):
    made = some(tmp_path / "builds", {})
    spoil(shard(made))
    assert cli.run(["export", str(made.path), "--to", form, "--out", str(tmp_path / "out")]) == 4
    assert "train/shard-00001.parquet" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["builds"]
    assert consumers.read(made.path, "export") == []


def test_an_error_in_the_middle_leaves_what_was_there(tmp_path, monkeypatch):
    made = some(tmp_path / "builds", {})
    export(made.path, "megatron", tmp_path / "out")
    before = files(tmp_path / "out")
    monkeypatch.setattr(megatron.Writer, "close", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(made.path, "megatron", tmp_path / "out", force=True)
    assert files(tmp_path / "out") == before
    assert sorted(os.listdir(tmp_path)) == ["builds", "out"]


def test_what_a_killed_export_left_stops_nobody_and_is_swept(tmp_path):
    made = some(tmp_path / "builds", {})
    code = (
        "import sys, os, signal\n"
        "from datapipe.feed.exports import export, megatron\n"
        "megatron.Writer.close = lambda self: os.kill(os.getpid(), signal.SIGKILL)\n"
        "export(sys.argv[1], 'megatron', sys.argv[2])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, made.path, tmp_path / "out"], check=False)
    assert done.returncode == -9
    (left,) = tmp_path.glob(".out.partial-*")
    assert list(left.iterdir())
    export(made.path, "megatron", tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["builds", "out"]


def test_what_is_there_is_not_replaced_unasked_and_only_exports_ever(tmp_path):
    made = some(tmp_path / "builds", {})
    export(made.path, "megatron", tmp_path / "out")
    with pytest.raises(ManifestError, match="--force replaces it"):
        export(made.path, "nanogpt", tmp_path / "out")
    export(made.path, "nanogpt", tmp_path / "out", force=True)
    assert set(files(tmp_path / "out")) == {"train.bin", "val.bin"}
    (tmp_path / "mine").mkdir()
    export(made.path, "nanogpt", tmp_path / "mine")  # an empty folder is as good as none
    (tmp_path / "mine/export.json").unlink()
    with pytest.raises(ManifestError, match="is no export"):
        export(made.path, "nanogpt", tmp_path / "mine", force=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ManifestError, match="is a file"):
        export(made.path, "nanogpt", tmp_path / "file", force=True)
    for inside in (made.path, made.path / "out"):
        with pytest.raises(ManifestError, match="lies in the build itself"):
            export(made.path, "nanogpt", inside, force=True)


REFUSED = {
    "a format that there is not": (("--to", "tfrecord"), "no format 'tfrecord': there are nanogpt"),
    "what a build is already": (("--to", "parquet"), "load_dataset reads its folder"),
    "a split that there is not": (("--to", "olmo", "--split", "test"), "no split 'test'"),
    "no split": (("--to", "olmo", "--split", ""), "no split ''"),
}


@pytest.mark.parametrize("options, said", REFUSED.values(), ids=REFUSED)
def test_refused(tmp_path, capsys, options, said):
    made = tiny(tmp_path)
    assert cli.run(["export", str(made.path), *options, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_split_without_rows_and_a_build_without_shards(tmp_path):
    made = exported.build(tmp_path, [SHORT], length=4, shards=1)
    export(made.path, "olmo", tmp_path / "out")
    assert set(files(tmp_path / "out")) == {"train/part-00000.csv.gz", "train/part-00000.npy"}
    with pytest.raises(ManifestError, match="validation has no rows"):
        export(made.path, "olmo", tmp_path / "more", splits=["validation"])
    without = synthetic.build(tmp_path, "plain", tokenizer=False)
    with pytest.raises(DataError, match="tokenizer"):
        export(without.path, "olmo", tmp_path / "more")


@pytest.mark.parametrize("vocabulary, fits", [(65_535, True), (65_536, False)])
def test_the_largest_vocabulary_of_nanogpt(tmp_path, vocabulary, fits):
    made = tiny(tmp_path, vocabulary=vocabulary)
    if fits:
        export(made.path, "nanogpt", tmp_path / "out")
    else:
        with pytest.raises(ManifestError, match="megatron, olmo or datatrove"):
            export(made.path, "nanogpt", tmp_path / "out")


# --- what is said ------------------------------------------------------------------------------------------------


def test_a_build_knows_of_its_exports(tmp_path, capsys):
    made = some(tmp_path / "builds", {"masks": True})
    for place in ("a", "b"):
        assert cli.run(["export", str(made.path), "--to", "olmo", "--out", str(tmp_path / place), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert Path(told["consumer"]).is_file()
    assert cli.run(["export", str(made.path), "--to", "olmo", "--out", str(tmp_path / "a"), "--force"]) == 0
    records = consumers.read(made.path, "export")
    assert sorted(one["where"] for one in records) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert {one["dataset_id"] for one in records} == {told["dataset_id"]}
    assert records[0]["splits"]["train"]["shards"][0] == "train/shard-00000.parquet"


def test_what_a_format_loses_is_said(tmp_path, capsys):
    made = some(tmp_path, {"masks": True, "packing": "concat"})
    assert cli.run(["export", str(made.path), "--to", "nanogpt", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    for what in ("borders: 68 documents are one stream", "loss masks: ", "sources", "targets more than in the build"):
        assert what in said


def test_documents_that_no_eos_ends_are_counted(tmp_path):
    docs = [Doc((2, 5, 6)), Doc((2, 5, 1)), Doc((2, 7, 8))]
    made = exported.build(tmp_path, docs, length=4, shards=1)
    told = export(made.path, "olmo", tmp_path / "out")
    assert told.splits["train"]["without_eos"] == 2
    assert any(lost.startswith("borders of 2 documents: OLMo-core finds them by eos") for lost in told.loses["train"])
    none = exported.build(tmp_path, docs, name="none", length=4, shards=1, eos=None)
    told = export(none.path, "megatron", tmp_path / "none-out")
    assert any("borders of 3 documents" in lost for lost in told.loses["train"])


def test_books_that_are_not_those_of_the_build(tmp_path, monkeypatch):
    made = some(tmp_path, {})
    monkeypatch.setattr("datapipe.feed.exports.delivery.whole", lambda rows, where: iter(()))
    with pytest.raises(IntegrityError, match=r"train has 0 documents, manifest\.json says 68"):
        export(made.path, "nanogpt", tmp_path / "out")


def test_an_export_loads_neither_numba_nor_duckdb_nor_torch(tmp_path):
    made = tiny(tmp_path)
    code = (
        "import sys; from datapipe.feed.exports import export; export(sys.argv[1], 'olmo', sys.argv[2]);"
        "print(*[name for name in ('numba', 'duckdb', 'torch', 'datapipe.pipeline') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, made.path, tmp_path / "out"], capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert done.stdout == "\n"
