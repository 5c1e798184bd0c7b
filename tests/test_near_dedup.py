"""Near dedup: against a brute-force twin, on cases, and whatever the memory, the threads and the layout of files."""

import hashlib
import itertools
import json
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path

import builders
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datapipe import stages, tables, text
from datapipe.documents import Documents, Work
from datapipe.kernels import walk
from datapipe.manifest import ExactDedup, NearDedup
from datapipe.stages import bands, exact_dedup, near_dedup, segments
from datapipe.stages.segments import Line

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]


@pytest.fixture
def work(tmp_path):
    with Work(tmp_path, "made", workers=2, memory=200_000_000) as made:
        yield made


def deduplicated(docs: Documents, **settings):
    """Near dedup as the next stage; its report."""
    spec = NearDedup.model_validate({"stage": "near_dedup"} | settings)
    return docs.apply("near_dedup", len(docs.reports) + 1, stages.judge(spec, docs))


def prose(n: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [rng.choice(WORDS) for _ in range(n)]


def versions(seed: int = 5, families: int = 12) -> list[dict]:
    """Families of texts with some words replaced, chains of versions, texts of a few words and of none."""
    rng = random.Random(seed)
    records = []
    for family in range(families):
        base = prose(rng.choice([6, 40, 150]), seed * 100 + family)
        for member in range(rng.randint(1, 7)):
            if rng.random() < 0.5:
                base = base.copy()  # a chain: the next version is made from this one
            words = base if rng.random() < 0.5 else base.copy()
            for _ in range(rng.choice([0, 1, 2, len(words) // 8])):
                words[rng.randrange(len(words))] = rng.choice(WORDS)
            split = "validation" if rng.random() < 0.2 else "train"
            records.append({"id": f"{family}.{member}", "text": " ".join(words), "split": split})
    records += [{"id": f"empty {i}", "text": value} for i, value in enumerate(["...", "!", "— —", "\u0000"])]
    return records + [{"id": f"short {i}", "text": value} for i, value in enumerate(["sun", "Sun!", "two sun", "moon"])]


# --- a twin that is obvious and slow -----------------------------------------------------------------------------


def twin(docs: Documents, spec: NearDedup, counts: Counter | None = None) -> dict[str, tuple[str, float]]:
    """What near dedup drops, by own id: the own id of the document that stays, and the similarity."""
    names = builders.ids(docs)
    ordered = docs.work.db.execute(
        "select replace(doc_id::varchar, '-', ''), part, row from documents where place is null "
        "order by split <> 'validation', priority desc, bytes desc, instant desc nulls last, text_hash, doc_id"
    ).fetchall()
    texts = {part.number: pq.read_table(part.path)["text"].to_pylist() for part in docs.parts}
    column = pa.array([texts[part][row] for _, part, row in ordered], pa.large_string())
    signature, _ = text.signatures(column, spec.ngram, spec.num_perm)
    offsets, hashes = text.shingle_sets(column, spec.ngram)
    sets = [set(hashes[a:b].tolist()) for a, b in itertools.pairwise(offsets)]
    buckets = text.band_buckets(signature, *text.bands_for(spec.threshold, spec.num_perm))
    remembered: dict[tuple[int, int], list[int]] = {}
    dropped = {}
    for d, own in enumerate(sets):
        places = [(band, int(bucket)) for band, bucket in enumerate(buckets[d])] if own else []
        met = {c for where in places for c in remembered.get(where, [])}
        agreement = {c: int((signature[c] == signature[d]).sum()) for c in met}
        possible = [
            c for c in met
            if agreement[c] >= near_dedup.least_agreement(spec.threshold, spec.num_perm)
            and Fraction(min(len(own), len(sets[c])), max(len(own), len(sets[c]))) >= Fraction(repr(spec.threshold))
        ]  # fmt: skip
        counts = Counter() if counts is None else counts
        for c in sorted(possible, key=lambda c: (-agreement[c], c))[:64]:
            counts["compared"] += 1
            similarity = Fraction(len(own & sets[c]), len(own | sets[c]))
            if similarity >= Fraction(repr(spec.threshold)):
                dropped[names[ordered[d][0]]] = (names[ordered[c][0]], float(similarity))
                break
        else:
            counts["capped"] += len(possible) > 64
            for where in places:
                if len(remembered.setdefault(where, [])) < 64:
                    remembered[where].append(d)
    return dropped


def found(docs: Documents) -> dict[str, tuple[str, float]]:
    return {name: (evidence["kept"], value) for name, _, value, evidence, _ in builders.ledger(docs)}


SETTINGS = [{}, {"threshold": 0.5, "ngram": 1, "num_perm": 64}, {"threshold": 0.93, "ngram": 3}, {"threshold": 1.0}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_walk_equals_the_twin(work, settings):
    docs = builders.documents(work, versions(), parts=3, row_group=7)
    expected = twin(docs, NearDedup.model_validate({"stage": "near_dedup"} | settings))
    report = deduplicated(docs, **settings)
    assert found(docs) == expected
    assert len(expected) >= 3
    assert report.notes["verified"] == len(expected)
    assert report.notes["compared"] == report.notes["verified"] + report.notes["rejected"]


def test_nothing_depends_on_memory_threads_or_layout(tmp_path, monkeypatch):
    records = versions(families=20)
    answers = []
    for case, (budget, workers, parts, order) in enumerate([(1 << 30, 1, 1, 1), (1, 2, 4, -1), (9000, 3, 2, 1)]):
        monkeypatch.setattr(near_dedup, "_budget", lambda docs, budget=budget: budget)
        with Work(tmp_path / str(case), "made", workers=workers, memory=200_000_000) as work:
            docs = builders.documents(work, records[::order], parts=parts, row_group=5)
            notes = deduplicated(docs).notes
            for name, write in (("signatures", bands.write_signatures), ("bands", bands.write_bands)):
                write(docs, tmp_path / f"{name}-{case}.parquet")
            tables_ = [(tmp_path / f"{name}-{case}.parquet").read_bytes() for name in ("signatures", "bands")]
            ledger = work.db.execute("select * from ledger order by doc").fetchall()
            answers.append((ledger, notes, tables_))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][1]["verified"] > 10


def test_a_walk_that_lets_go_of_its_pages_decides_the_same(tmp_path, monkeypatch):
    base = prose(60, 3)
    rng = random.Random(4)
    records = [{"id": str(i), "text": " ".join([*base[:50], *rng.sample(WORDS, 10)])} for i in range(120)]
    records += [{"id": f"{i} again", "text": records[i]["text"] + " end"} for i in range(0, 120, 3)]
    answers = []
    for memory, budget in ((200_000_000, 1 << 30), (200_000_000, 1)):
        monkeypatch.setattr(near_dedup, "_budget", lambda docs, budget=budget: budget)
        with Work(tmp_path / str(budget), "made", memory=memory) as work:
            docs = builders.documents(work, records)
            if budget == 1:
                docs.work.memory = 8  # a pause after each document
            deduplicated(docs)
            docs.work.memory = memory
            answers.append(found(docs))
    assert answers[0] == answers[1]
    assert len(answers[0]) >= 40


# --- cases -------------------------------------------------------------------------------------------------------


def read_case(shared: Path, name: str) -> tuple[dict, dict[str, list[dict]]]:
    folder = shared / "cases" / name
    files = {
        str(path.relative_to(folder)): [r for piece in builders.read_jsonl(path) for r in piece]
        for path in sorted(folder.rglob("*.jsonl"))
    }
    return json.loads((folder / "EXPECT.json").read_text())["expect"], files


def test_texts_of_a_word_or_none_are_nobodys_near_duplicates(work, shared):
    """B14; the two blank texts are rejected when they are read."""
    expected, files = read_case(shared, "B14")
    records = [r for file in files.values() for r in file if r["text"].strip()]
    docs = builders.documents(work, records)
    exact = docs.apply("exact_dedup", 1, stages.judge(ExactDedup(stage="exact_dedup"), docs))
    near = deduplicated(docs)
    assert exact.dropped == {"same text": expected["exact_removed"]}
    assert near.dropped == {}
    texts = {r["id"]: r["text"] for r in records}
    assert sorted(texts[name] for name in builders.alive(docs)) == expected["kept_texts"]


def test_near_copies_are_found_in_every_script(work, shared):
    """B15: one Chinese and one Arabic text come twice, with a character or a word of difference."""
    expected, files = read_case(shared, "B15")
    docs = builders.documents(work, [r for file in files.values() for r in file])
    deduplicated(docs)
    pairs = {tuple(sorted((name, kept))): value for name, (kept, value) in found(docs).items()}
    assert sorted(pairs) == [("ar_A", "ar_A2"), ("zh_A", "zh_A2")]
    assert pairs["zh_A", "zh_A2"] == pytest.approx(expected["jaccard"]["zh_pair_char5"], abs=0.02)
    assert len(builders.alive(docs)) == expected["kept"]


def test_every_layout_of_files_keeps_the_same(tmp_path, shared):
    """B17: copies spread over files in three ways, with one, two and four threads."""
    expected, files = read_case(shared, "B17")
    kept = set()
    for layout in ("layout1", "layout2", "layout3"):
        for workers in expected["workers"]:
            with Work(tmp_path / layout, "made", workers=workers, memory=200_000_000) as work:
                pieces = [records for path, records in files.items() if path.startswith(layout)]
                docs = builders.from_pieces(work, pieces)
                report = deduplicated(docs)
                query = "select doc_id, doc from documents where place is null order by doc"
                kept.add(tuple(work.db.execute(query).fetchall()))
                assert report.entered - report.left == expected["removed"]
                assert report.notes["largest"] == sorted(expected["clusters"].values(), reverse=True)
    assert len(kept) == 1


def edited(words: list[str], *places: int) -> str:
    return " ".join("other" + word if i in places else word for i, word in enumerate(words))


def test_a_similarity_of_exactly_the_threshold_leaves(work):
    # n words have n - 4 shingles; the last word changed leaves all but one: (n - 5) / (n - 3)
    records = []
    for n in (13, 12):  # 8 / 10 and 7 / 9
        words = prose(n, n)
        records += [{"id": f"{n} a", "text": edited(words, n - 1)}, {"id": f"{n} b", "text": edited(words) + "y" * 9}]
    docs = builders.documents(work, records)
    report = deduplicated(docs, num_perm=1024)
    assert builders.ledger(docs) == [("13 a", "jaccard >= 0.8", 0.8, {"jaccard": 0.8, "kept": "13 b"}, True)]
    assert report.dropped == {"jaccard >= 0.8": 1}


def test_the_ends_of_a_chain_do_not_drag_each_other_out(work):
    words = prose(400, 1)
    chain = []
    for step in range(12):
        chain.append({"id": f"v{step:02}", "text": " ".join(words), "priority": 20 - step})
        words = edited(words, *range(step * 30, step * 30 + 12)).split()
    docs = builders.documents(work, chain)
    deduplicated(docs)
    stays = builders.alive(docs)
    assert stays[0] == "v00"
    assert 3 < len(stays) < 12
    assert all(value >= 0.8 and kept in stays for kept, value in found(docs).values())


def test_validation_stays_and_train_leaves(work):
    words = prose(80, 2)
    records = [
        {"id": "train", "text": " ".join(words) + " and more", "priority": 9},
        {"id": "valid", "text": " ".join(words), "split": "validation"},
        {"id": "valid too", "text": " ".join(words) + ".", "split": "validation"},
    ]
    docs = builders.documents(work, records)
    report = deduplicated(docs)
    assert found(docs) == {"train": ("valid too", pytest.approx(76 / 78)), "valid": ("valid too", 1.0)}
    assert report.notes["leak"] == 1


def test_pairs_that_differ_in_digits_alone_are_counted(work):
    words = " ".join(prose(90, 8))
    records = [{"id": f"n{i}", "text": f"{words} page {i}{'0' * i} \u0661"} for i in (1, 2)]
    records += [{"id": "same", "text": records[0]["text"]}, {"id": "w", "text": f"{words} page x \u0661"}]
    docs = builders.documents(work, records)
    report = deduplicated(docs, prefer=["longest"])
    assert report.dropped == {"jaccard >= 0.8": 3}
    assert report.notes["numeric_only"] == 2  # n1 and its copy against n2; `w` differs in a letter


def test_more_candidates_than_comparisons_are_reported(work):
    # everyone shares half of its words with everyone: buckets of one row bring all together, and nobody is similar
    rng = random.Random(7)
    base = prose(40, 7)
    records = [{"id": str(i), "text": " ".join(base + rng.sample(WORDS, 14))} for i in range(130)]
    docs = builders.documents(work, records)
    spec = NearDedup.model_validate({"stage": "near_dedup", "threshold": 0.7, "ngram": 1})
    counts = Counter()
    expected = twin(docs, spec, counts)
    report = deduplicated(docs, threshold=0.7, ngram=1)
    assert found(docs) == expected
    assert {name: report.notes[name] for name in ("compared", "capped")} == counts
    assert counts["capped"] > 0


def test_clusters_follow_the_evidence_of_both_stages(work, tmp_path):
    words = prose(90, 9)
    records = [
        {"id": "near", "text": " ".join(words) + " x"},
        {"id": "copy of near", "text": " ".join(words) + "  x", "priority": -1},
        {"id": "stays", "text": " ".join(words) + " longer"},
        {"id": "twice", "text": "something else"},
        {"id": "twice more", "text": "something  else", "priority": -1},
        {"id": "alone", "text": " ".join(prose(50, 10))},
        {"id": "no units", "text": "..."},
    ]
    docs = builders.documents(work, records)
    docs.apply("exact_dedup", 1, stages.judge(ExactDedup(stage="exact_dedup"), docs))
    report = deduplicated(docs)
    bands.write_signatures(docs, tmp_path / "signatures.parquet")
    names = builders.ids(docs)
    rows = pq.read_table(tmp_path / "signatures.parquet").to_pylist()
    clusters = {names[row["doc_id"]]: row["cluster"] and names[row["cluster"]] for row in rows}
    assert clusters == {
        "near": "stays", "stays": "stays", "twice": "twice", "alone": None, "no units": None
    }  # fmt: skip
    assert (report.notes["clusters"], report.notes["largest"]) == (1, [3])


def test_signatures_and_bands_of_everyone_who_came_this_far(work, tmp_path):
    docs = builders.documents(work, versions(), parts=3)
    deduplicated(docs)
    bands.write_signatures(docs, tmp_path / "signatures.parquet")
    bands.write_bands(docs, tmp_path / "bands.parquet")
    signatures = pq.read_table(tmp_path / "signatures.parquet")
    assert signatures.schema.equals(tables.signatures_schema(128))
    names = signatures["doc_id"].to_pylist()
    assert names == sorted(builders.ids(docs))
    own = builders.ids(docs)
    texts = {r["id"]: r["text"] for r in versions()}
    column = pa.array([texts[own[name]] for name in names], pa.large_string())
    matrix, shingles = text.signatures(column, 5, 128)
    assert np.array_equal(signatures["signature"].combine_chunks().flatten().to_numpy().reshape(-1, 128), matrix)
    assert signatures["n_shingles"].to_pylist() == shingles.tolist()
    rows = pq.read_table(tmp_path / "bands.parquet")
    assert rows.schema.equals(tables.BANDS)
    buckets = text.band_buckets(matrix, 21, 6)
    expected = [(band, int(buckets[doc, band]), doc) for doc in np.flatnonzero(shingles).tolist() for band in range(21)]
    assert [tuple(row.values()) for row in rows.to_pylist()] == sorted(expected)


@pytest.mark.parametrize("records", [[], [{"text": "..."}], [{"text": "one"}]], ids=["none", "no units", "one"])
def test_with_nothing_to_compare(work, tmp_path, records):
    docs = builders.documents(work, records)
    report = deduplicated(docs)
    bands.write_signatures(docs, tmp_path / "signatures.parquet")
    bands.write_bands(docs, tmp_path / "bands.parquet")
    assert report.dropped == {}
    assert pq.read_metadata(tmp_path / "signatures.parquet").num_rows == len(records)
    assert pq.read_metadata(tmp_path / "bands.parquet").num_rows == (21 if records == [{"text": "one"}] else 0)


def test_only_documents_without_a_signature_are_signed(tmp_path):
    records = versions()
    with Work(tmp_path, "made", memory=200_000_000) as work:
        docs = builders.documents(work, records)
        work.db.execute("update documents set place = 0 where doc < 10")
        deduplicated(docs)
        assert work.store.ran["signatures"] == 1
    with Work(tmp_path, "made", memory=200_000_000) as work:
        docs = builders.documents(work, records)
        deduplicated(docs)
        sidecars = [json.loads(path.read_bytes()) for path in work.store.folder.glob("*/unit.json")]
    signed = [sidecar for sidecar in sidecars if sidecar["function"] == "signatures"]
    assert sorted(sidecar["counts"]["rows"] for sidecar in signed) == [10, len(records) - 10]
    assert len({sidecar["family"] for sidecar in signed}) == 1


GOLDEN = {  # by VERSION of bands, exact_dedup and text: what their work units hold; another output needs another one
    (1, 1, 1): "551e654cec29d7224ad650cbd5880fbaae09c16173c2752e59a13e66260442e3",
}


def test_output_changes_with_the_version_alone():
    values = [
        "",
        "Ein Text, zwei Worte",
        "caf\u00e9  au lait " * 9,
        "\u6e05\u6668\u7684\u96c6\u5e02\u4e0a\u6446\u6ee1\u4e86",
        "x = [1, 2]\n\ty",
    ]
    table = pa.table({"text": pa.array(values, pa.large_string())})
    state = hashlib.sha256()
    for derivation in (bands._derivation(bands.banding(0.8, 5, 128)), exact_dedup._derivation()):
        for column in derivation.compute(table):
            state.update(json.dumps(column.to_pylist(), default=bytes.hex).encode())
    assert GOLDEN[bands.VERSION, exact_dedup.VERSION, text.VERSION] == state.hexdigest()


# --- pieces ------------------------------------------------------------------------------------------------------


def test_threshold_and_least_agreement():
    rule = near_dedup.rule_of(0.8, 128)
    assert (rule.part, rule.whole) == (4, 5)
    assert near_dedup.rule_of(0.1 + 0.2, 64).whole <= 10**9
    draws = np.random.default_rng(1).binomial(128, 0.8, 200_000)
    assert 70 < rule.least < draws.min() + 3
    assert near_dedup.least_agreement(1.0, 128) == 128


@pytest.mark.parametrize("seed", range(5))
def test_intersection(seed):
    rng = np.random.default_rng(seed)
    a, b = (np.unique(rng.integers(0, 60, rng.integers(0, 50)).astype(np.uint64) << np.uint64(58)) for _ in range(2))
    common = len(np.intersect1d(a, b))
    for least in range(common + 3):
        assert walk.intersection(a, b, least) == (common if least <= common else -1)


def test_link_groups_are_components():
    rng = np.random.default_rng(3)
    rows = sorted({(int(b), int(k), int(d)) for b, k, d in rng.integers(0, (3, 25, 60), (70, 3))})
    parent = np.full(60, -1, np.int64)
    band, bucket, doc = np.array(rows).T.copy()
    walk.link(band, bucket, doc, parent)
    walk.roots(parent)
    groups = {d: {d} for d in range(60)}
    for *where, x in rows:
        for *other, y in rows:
            if where == other and groups[x] is not groups[y]:
                joined = groups[x] | groups[y]
                groups.update(dict.fromkeys(joined, joined))
    expected = [min(groups[d]) if len(groups[d]) > 1 else -1 for d in range(60)]
    assert parent.tolist() == expected


@pytest.mark.parametrize("budget", [1, 3, 7, 20, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_segments_are_whole_groups_within_the_budget(budget, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, rng.integers(0, 12))
    group = np.repeat(np.arange(len(sizes)), sizes)
    line = Line(np.arange(len(group)), np.arange(len(group)), group, rng.integers(1, 6, len(group)))
    cut = segments.segments(line, budget)
    assert [(s.start, s.stop) for s in cut] == list(
        zip([0, *[s.stop for s in cut]][: len(cut)], [s.stop for s in cut], strict=True)
    )
    assert (cut[-1].stop if cut else 0) == len(group)
    for segment in cut:
        inside = group[segment.start : segment.stop]
        outside = np.concatenate([group[: segment.start], group[segment.stop :]])
        assert not set(inside.tolist()) & set(outside.tolist())
        if line.bytes[segment.start : segment.stop].sum() > budget:
            assert len(set(inside.tolist())) == 1
        for piece in segment.pieces:
            low, high = segment.borders[piece], segment.borders[piece + 1]
            assert high - low == 1 or line.bytes[low:high].sum() <= budget
