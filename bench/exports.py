"""
Every export read by the trainer it is for: equal ids, borders of documents, masks; equal bytes where that writes too.

    python bench/exports.py [--env FOLDER] [--only NAME ...] [--build BUILD]

Builds are made of documents that packing cuts, in copies, with and without masks, ids of 8 to 32 bits, both storages
and both packings (tests/exported.py), or BUILD is taken.  What an export must hold is put together from the shards'
columns here, token by token, by nothing that the export uses.  Each peer runs in an environment of its own with its
REQUIREMENTS, made in a temporary folder, or in a folder of its name below --env, made where it is missing.

nanogpt    np.memmap of uint16, the line of nanoGPT's train.py, which is no package
megatron   IndexedDataset, by memory map and by file; IndexedDatasetBuilder writes the same documents: bytes compared
olmo       NumpyFSLDataset with label masks; iter_document_indices, from .csv.gz and by eos
datatrove  DatatroveFolderDataset with positions; the merger's readers with loss; TokenizedFile writes: bytes compared
mds        the export itself runs there; StreamingDataset with validate_hash
litdata    the export itself runs there; StreamingDataset

Exit status 1 where anything differs.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in (".", "tests")]

# torchvision of the index is built for another torch than the CPU one; what streaming wants of it is not read here
REQUIREMENTS = {
    "nanogpt": ["numpy==2.4.6"],
    "megatron": ["torch==2.13.0", "megatron-core==0.16.1", "numpy==2.4.6"],
    "olmo": ["torch==2.13.0", "ai2-olmo-core==3.0.0", "numpy==2.4.6"],
    "datatrove": ["torch==2.13.0", "datatrove==0.10.1", "numpy==2.4.6"],
    "mds": [
        "torch==2.13.0",
        "mosaicml-streaming==0.13.0",
        "pyarrow==26.0.1",
        "pydantic==2.14.4",
        "filelock==3.18.0",
    ],  # a newer one refuses the locks that streaming's workers inherit
    "litdata": ["torch==2.13.0", "litdata==0.2.76", "pyarrow==26.0.1", "pydantic==2.14.4", "xxhash==4.1.0"],
}
ROWS = ("mds", "litdata")
CASES: dict[str, dict[str, Any]] = {
    "best_fit": {},
    "masks": {"masks": True},
    "concat, binary, 8 bits, masks": {"packing": "concat", "storage": "binary", "vocabulary": 200, "masks": True},
    "32 bits": {"vocabulary": 70_000},
    "32 bits, binary, masks": {"vocabulary": 70_000, "storage": "binary", "masks": True},
}
BUILD = ("packing", "storage", "vocabulary")

View = dict[str, Any]  # ids, and where the reader has them ends and mask; same: are the bytes those of its own writer


# --- the peers' side: this file run by another Python ------------------------------------------------------------


def documents(given: Sequence[tuple[np.ndarray, np.ndarray | None]]) -> View:
    """Documents end to end."""
    ids = [np.asarray(doc, np.int64) for doc, _ in given]
    masks = [mask for _, mask in given if mask is not None]
    view: View = {"ids": np.concatenate(ids), "ends": np.cumsum([len(doc) for doc in ids])}
    return view | ({"mask": np.concatenate(masks)} if masks else {})


def read_nanogpt(folder: Path, split: str, _: Mapping[str, Any]) -> Iterator[tuple[str, View]]:
    name = {"train": "train.bin", "validation": "val.bin"}[split]
    yield "np.memmap", {"ids": np.memmap(str(folder / name), dtype=np.uint16, mode="r").astype(np.int64)}


def read_megatron(folder: Path, split: str, _: Mapping[str, Any]) -> Iterator[tuple[str, View]]:
    from megatron.core.datasets.indexed_dataset import (  # pyright: ignore[reportMissingImports]
        IndexedDataset,
        IndexedDatasetBuilder,
    )

    prefix = str(folder / split)
    for mmap in (True, False):
        data = IndexedDataset(prefix, mmap=mmap)
        edges = data.document_indices.tolist()
        docs = [
            (np.concatenate([data[n] for n in range(first, stop)]), None) for first, stop in itertools.pairwise(edges)
        ]
        yield f"IndexedDataset, {'mmap' if mmap else 'file'}", documents(docs)
    with tempfile.TemporaryDirectory() as scratch:
        import torch  # pyright: ignore[reportMissingImports]

        builder = IndexedDatasetBuilder(f"{scratch}/w.bin", dtype=data.index.dtype)
        for ids, _mask in docs:
            builder.add_item(torch.from_numpy(ids.astype(np.int64)))
            builder.end_document()
        builder.finalize(f"{scratch}/w.idx")
        pairs = [(folder / f"{split}{end}", Path(scratch) / f"w{end}") for end in (".bin", ".idx")]
        yield "IndexedDatasetBuilder", {"same": all(a.read_bytes() == b.read_bytes() for a, b in pairs)}


def read_olmo(folder: Path, split: str, about: Mapping[str, Any]) -> Iterator[tuple[str, View]]:
    from olmo_core.data import NumpyFSLDataset  # pyright: ignore[reportMissingImports]
    from olmo_core.data.utils import (  # pyright: ignore[reportMissingImports]
        iter_document_indices,
        load_array_slice,
    )

    paths = sorted((folder / split).glob("*.npy"))
    masks = sorted((folder / f"{split}_label_mask").glob("*.npy"))
    dtype = {"uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32}[about["splits"][split]["dtype"]]
    data = NumpyFSLDataset(
        *map(str, paths), sequence_length=about["length"], pad_token_id=0, eos_token_id=about["eos"],
        vocab_size=about["tokenizer"]["vocab_size"], dtype=dtype, label_mask_paths=[*map(str, masks)] or None,
    )  # fmt: skip
    data.prepare()
    rows = [data[n] for n in range(len(data))]
    view = {"ids": np.concatenate([row["input_ids"].numpy() for row in rows])}
    yield (
        "NumpyFSLDataset",
        view | ({"mask": np.concatenate([row["label_mask"].numpy() for row in rows])} if masks else {}),
    )
    for name, options in (
        (".csv.gz", {"use_array_if_local": False}),
        ("by eos", {"eos_token_id": about["eos"], "dtype": dtype}),
    ):
        docs: list[tuple[np.ndarray, np.ndarray | None]] = []
        for number, path in enumerate(paths):
            for start, end in iter_document_indices(str(path), **options):
                mask = load_array_slice(str(masks[number]), start, end, np.bool_) if masks else None
                docs.append((load_array_slice(str(path), start, end, dtype), mask))
        yield f"iter_document_indices, {name}", documents(docs)


def read_datatrove(folder: Path, split: str, about: Mapping[str, Any]) -> Iterator[tuple[str, View]]:
    from datatrove.pipeline.tokens.merger import (  # pyright: ignore[reportMissingImports]
        get_data_reader,
        load_doc_ends,
    )
    from datatrove.pipeline.tokens.tokenizer import TokenizedFile  # pyright: ignore[reportMissingImports]
    from datatrove.utils.dataset import DatatroveFolderDataset  # pyright: ignore[reportMissingImports]

    width = np.dtype(about["splits"][split]["dtype"]).itemsize
    data = DatatroveFolderDataset(str(folder / split), about["length"], token_size=width, return_positions=True)
    rows = [data[n] for n in range(len(data))]
    positions = np.concatenate([row["positions"].numpy() for row in rows])
    starts = np.flatnonzero(positions == 0)
    yield (
        "DatatroveFolderDataset",
        {
            "ids": np.concatenate([row["input_ids"].numpy() for row in rows]),
            "ends": np.append(starts[1:], len(positions)),
        },
    )
    docs: list[tuple[np.ndarray, np.ndarray | None]] = []
    same = True
    for path in sorted((folder / split).glob("*.ds")):
        index, loss = Path(f"{path}.index"), Path(f"{path}.loss")
        ends = load_doc_ends(index.open("rb"))  # each closes its file
        ids = [np.frombuffer(doc, f"<u{width}") for doc in get_data_reader(path.open("rb"), ends, nb_bytes=width)]
        masks = [np.frombuffer(doc, "?") for doc in get_data_reader(loss.open("rb"), ends)] if loss.exists() else None
        here = list(zip(ids, masks or [None] * len(ids), strict=True))
        docs += here
        same &= rewritten(TokenizedFile, path, here, width, about)
    yield "merger", documents(docs)
    yield "TokenizedFile", {"same": same}


def rewritten(
    writer: Any, path: Path, docs: Sequence[tuple[np.ndarray, np.ndarray | None]], width: int, about: Mapping[str, Any]
) -> bool:
    """Whether datatrove's own writer makes the same files of the same documents."""
    with tempfile.TemporaryDirectory() as scratch:
        file = writer(
            scratch, path.name, save_loss_metadata=docs[0][1] is not None, save_final_metadata=True, token_size=width,
            tokenizer_name_or_path=f"sha256:{about['tokenizer']['sha256']}",
        )  # fmt: skip
        for ids, mask in docs:
            file.write(ids.tolist(), mask)
        file.close()
        theirs = {one.name: one.read_bytes() for one in Path(scratch).iterdir()}
    return theirs == {one.name: one.read_bytes() for one in path.parent.glob(f"{path.name}*")}


def read_mds(folder: Path, split: str, _: Mapping[str, Any]) -> Iterator[tuple[str, View]]:
    from streaming import StreamingDataset  # pyright: ignore[reportMissingImports]

    data = StreamingDataset(local=str(folder / split), shuffle=False, batch_size=1, validate_hash="sha256")
    yield "StreamingDataset", samples([data[n] for n in range(len(data))])


def read_litdata(folder: Path, split: str, _: Mapping[str, Any]) -> Iterator[tuple[str, View]]:
    from litdata import StreamingDataset  # pyright: ignore[reportMissingImports]

    data = StreamingDataset(str(folder / split))
    yield "StreamingDataset", samples([data[n] for n in range(len(data))])


def samples(rows: Sequence[Mapping[str, Any]]) -> View:
    """All columns of rows, end to end; masks as the bytes of all rows, after how many each has."""
    names = ("input_ids", "seg_len", "seg_doc", "seg_start", "seg_flags", "seg_source")
    masks = [bytes(row["loss_mask"]) for row in rows]
    return {name: np.concatenate([row[name] for row in rows]) for name in names} | {
        "row_id": np.array([row["row_id"] for row in rows]),
        "n_tokens": np.array([row["n_tokens"] for row in rows]),
        "segments": np.array([len(row["seg_len"]) for row in rows]),
        "masks": np.array([len(mask) for mask in masks]),
        "loss_mask": np.frombuffer(b"".join(masks), np.uint8),
    }


def without_torchvision() -> None:
    """streaming imports it for its vision data sets; the one of the index does not load beside torch for the CPU."""
    import importlib.machinery
    import types

    vision, sets, transforms, functional = (
        types.ModuleType(f"torchvision{name}") for name in ("", ".datasets", ".transforms", ".transforms.functional")
    )
    sets.VisionDataset = object  # pyright: ignore[reportAttributeAccessIssue]
    functional.to_tensor = None  # pyright: ignore[reportAttributeAccessIssue]
    for module in (vision, sets, transforms, functional):
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
        sys.modules[module.__name__] = module


def peer(asked: Mapping[str, Any]) -> None:
    """Read one split of an export and write what was seen; in ROWS, make the export first."""
    name, folder, split = asked["name"], Path(asked["folder"]), asked["split"]
    if name == "mds":
        without_torchvision()
    if name in ROWS and not folder.exists():
        from datapipe.feed.exports import export

        export(asked["build"], name, folder)
    about = json.loads((folder / "export.json").read_bytes())
    about |= {"length": asked["length"], "eos": about["tokenizer"]["eos"]}
    views = dict(READERS[name](folder, split, about))
    arrays = {f"{number}.{key}": value for number, view in enumerate(views.values()) for key, value in view.items()}
    np.savez(asked["answer"], names=np.array(list(views)), **arrays)


READERS: dict[str, Callable[[Path, str, Mapping[str, Any]], Iterator[tuple[str, View]]]] = {
    "nanogpt": read_nanogpt, "megatron": read_megatron, "olmo": read_olmo, "datatrove": read_datatrove,
    "mds": read_mds, "litdata": read_litdata,
}  # fmt: skip


# --- what must be there, from the shards alone -------------------------------------------------------------------


def truth(build: Path, split: str, length: int) -> tuple[list[list[tuple[list[int], list[bool]]]], list[dict]]:
    """Documents of each shard, token by token; and all rows."""
    import pyarrow.parquet as pq

    from datapipe.rows import ids_of

    shards, rows = [], []
    for path in sorted((build / split).glob("*.parquet")):
        table = pq.read_table(path)
        ids = ids_of(table["input_ids"].combine_chunks(), length).reshape(-1, length).tolist()
        found: dict[int, tuple[dict[int, int], dict[int, bool]]] = {}
        for row, values in zip(table.drop_columns(["input_ids"]).to_pylist(), ids, strict=True):
            rows.append(row | {"input_ids": values})
            bits = row["loss_mask"]
            at = 0
            for doc, start, size in zip(row["seg_doc"], row["seg_start"], row["seg_len"], strict=True):
                tokens, mask = found.setdefault(doc, ({}, {}))
                for n in range(size):
                    assert tokens.setdefault(start + n, values[at]) == values[at]
                    mask.setdefault(start + n, bits is None or bool(bits[at // 8] >> at % 8 & 1))
                    at += 1
        shards.append([
            ([tokens[n] for n in range(len(tokens))], [mask[n] for n in range(len(tokens))])
            for tokens, mask in found.values()
        ])  # fmt: skip
    return shards, rows


def differences(view: View, name: str, shards: Sequence[Sequence[tuple[list[int], list[bool]]]], length: int) -> list:
    """What of a view of documents is not as it must be."""
    wrong = [] if view.get("same", True) else ["bytes"]
    if "ids" not in view:
        return wrong
    window = {"NumpyFSLDataset": length, "DatatroveFolderDataset": length + 1}.get(name)
    ids, mask, ends = [], [], []
    for docs in shards:
        here = [token for tokens, _ in docs for token in tokens]
        cut = len(here) if window is None else len(here) // window * window
        borders = set(np.cumsum([len(tokens) for tokens, _ in docs]).tolist())
        if window is not None:  # positions begin anew in each window
            borders |= set(range(window, cut + 1, window))
        ends += [len(ids) + end for end in sorted(borders) if end <= cut]
        ids += here[:cut]
        mask += [bit for _, bits in docs for bit in bits][:cut]
    for key, expected in (("ids", ids), ("ends", ends), ("mask", mask)):
        if key in view and view[key].tolist() != expected:
            wrong.append(key)
    if not all(mask) and "mask" not in view and name in {"NumpyFSLDataset", "merger", "iter_document_indices, by eos"}:
        wrong.append("no mask")
    return wrong


def differing_rows(view: View, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What of a view of rows is not as in the shards."""
    lists = ("input_ids", "seg_len", "seg_doc", "seg_start", "seg_flags", "seg_source")
    must = {name: [value for row in rows for value in row[name]] for name in lists}
    must |= {name: [row[name] for row in rows] for name in ("row_id", "n_tokens")}
    must["segments"] = [len(row["seg_len"]) for row in rows]
    wrong = [name for name, values in must.items() if view[name].tolist() != values]
    at = 0
    for row, size in zip(rows, view["masks"].tolist(), strict=True):
        length = len(row["input_ids"])
        given = np.unpackbits(view["loss_mask"][at : at + size], bitorder="little", count=length) if size else None
        bits = row["loss_mask"]
        stored = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=length) if bits else None
        ones = np.ones(length, np.uint8)
        if not np.array_equal(ones if given is None else given, ones if stored is None else stored):
            wrong.append("loss_mask")
            break
        at += size
    return wrong


# --- the job -----------------------------------------------------------------------------------------------------


def environment(folder: Path, name: str) -> str:
    """A Python with what a peer needs."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS[name]], check=True)
    return str(python)


def ask(python: str, question: Mapping[str, Any]) -> dict[str, View]:
    """What the peer saw of a split, by reader."""
    done = subprocess.run(
        [python, __file__, "--as-peer", json.dumps(question)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{question['name']}: its reader failed\n{done.stderr[-3000:]}")
    with np.load(question["answer"]) as found:
        return {
            str(name): {key.split(".", 1)[1]: found[key] for key in found.files if key.startswith(f"{number}.")}
            for number, name in enumerate(found["names"])
        }


def check(name: str, case: str, build: Path, scratch: Path, python: str) -> int:
    """Export a build, let the peer read it, print a line a reader and split; how many differ."""
    from datapipe.errors import ManifestError
    from datapipe.feed.exports import export

    made = json.loads((build / "manifest.json").read_bytes())
    length = made["manifest"]["sequences"]["length"]
    folder = scratch / f"{name}-{abs(hash(case))}"
    try:
        if name not in ROWS:
            export(build, name, folder)
    except ManifestError as error:
        print(f"{name:<10} {case:<30} refused: {error}")
        return 0
    bad = 0
    for split in ("train", "validation"):
        if not made["splits"][split]["sequences"]:
            continue
        shards, rows = truth(build, split, length)
        question = {"name": name, "folder": str(folder), "split": split, "build": str(build), "length": length,
                    "answer": str(scratch / "answer.npz")}  # fmt: skip
        for reader, view in ask(python, question).items():
            wrong = differing_rows(view, rows) if name in ROWS else differences(view, reader, shards, length)
            kinds = {"ids": "ids", "input_ids": "ids", "ends": "borders", "seg_len": "segments", "mask": "masks",
                     "loss_mask": "masks", "same": "bytes"}  # fmt: skip
            seen = ", ".join(dict.fromkeys(kinds[key] for key in view if key in kinds))
            count = len(view.get("ids", view.get("input_ids", ())))
            state = f"DIFFERS: {', '.join(wrong)}" if wrong else f"equal {seen}"
            print(f"{name:<10} {case:<30} {split:<10} {reader:<32} {count or '':>9} {state}", flush=True)
            bad += bool(wrong)
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", type=Path, help="environments of the peers, by name")
    parser.add_argument("--only", nargs="+", choices=list(READERS), default=list(READERS))
    parser.add_argument("--build", type=Path, help="a build's folder, in place of those made here")
    parser.add_argument("--as-peer", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_peer:
        peer(asked.as_peer)
        return 0
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        builds = {str(asked.build): asked.build} if asked.build else made_here(scratch / "builds")
        for one in asked.only:
            python = environment(asked.env or scratch / "env", one)
            for case, build in builds.items():
                bad += check(one, case, build, scratch, python)
    print(f"{bad} differ" if bad else "all equal")
    return bool(bad)


def made_here(folder: Path) -> dict[str, Path]:
    """The builds of CASES."""
    import exported

    found = {}
    for number, (case, options) in enumerate(CASES.items()):
        given = {key: value for key, value in options.items() if key in BUILD}
        docs = exported.some(
            400, seed=number, longest=300, vocabulary=options.get("vocabulary", 1000), masks=options.get("masks", False)
        )
        found[case] = exported.build(folder, docs, name=f"case-{number}", length=64, **given).path
    return found


if __name__ == "__main__":
    sys.exit(main())
