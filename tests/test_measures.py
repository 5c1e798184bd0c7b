"""Measures of parts that something is found of, against those of all parts; longer n-grams against counting."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from datapipe.auditing.measures import counts, held_by, measured, measured_longer
from datapipe.auditing.sweep import SWEPT
from datapipe.contamination import scan
from datapipe.contamination.index import Index
from datapipe.contamination.metrics import Grams, measure
from datapipe.contamination.model import EXAMPLES, FILES, PARTS, Suites

WORDS = [f"w{at}" for at in range(9)]  # so few that n-grams return


def suites(texts: list[list[str]]) -> Suites:
    """Examples of prompts."""
    parts = [(example, text) for example, own in enumerate(texts) for text in own]
    return Suites(
        pa.Table.from_pylist([
            {"example": at, "suite": "a", "id": str(at), "file": "a", "row": at, "split": None, "lang": None,
             "problem": None} for at in range(len(texts))
        ], EXAMPLES),
        pa.Table.from_pylist([
            {"part": at, "example": example, "kind": "prompt", "ordinal": 0, "correct": None, "text": text}
            for at, (example, text) in enumerate(parts)
        ], PARTS),
        FILES.empty_table(),
    )  # fmt: skip


def words(rng: random.Random, least: int, most: int) -> list[str]:
    return [rng.choice(WORDS) for _ in range(rng.randint(least, most))]


def case(seed: int) -> tuple[Suites, list[str]]:
    """Examples, some with the text of another one, and documents with pieces of them."""
    rng = random.Random(seed)
    texts = [[" ".join(words(rng, 1, 40)) for _ in range(rng.randint(1, 3))] for _ in range(12)]
    texts[5] = [*texts[2]]
    documents = []
    for _ in range(15):
        own = rng.choice(rng.choice(texts)).split()
        low = rng.randint(0, len(own))
        piece = own[low : low + rng.randint(3, 30)]
        documents.append(" ".join([*words(rng, 0, 12), *piece, "and", *words(rng, 0, 12), *piece[:14]]))
    return suites(texts), documents


def found_in(index: Index, documents: list[str]) -> scan.Found:
    return scan.scan(index, pa.array(documents, pa.large_string()), np.arange(len(documents)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("excluding", [True, False])
def test_the_same_as_of_all_parts(seed, excluding):
    asked, documents = case(seed)
    index = Index.build(asked.parts, 4)
    found, layout = found_in(index, documents), index.layout
    held, known = held_by(asked, layout, index.n_grams), counts(found, index.n_grams)
    excluded = np.random.default_rng(seed).random(len(layout.grams)) < 0.4 if excluding else None
    of_each = Counter(
        gram for example in range(len(asked.examples)) for gram in
        {int(gram) for part in asked.parts_of(example)["part"].to_pylist() for gram in _grams(layout, part)}
    )  # fmt: skip
    assert {gram: n for gram, n in enumerate(held.tolist()) if n} == of_each
    docs, times = (np.zeros(index.n_grams, np.int64) for _ in range(2))
    docs[known.gram], times[known.gram] = known.docs, known.occurrences
    grams = Grams(docs, times, held, len(documents), len(asked.examples))
    every = measure(layout, found.runs, grams, excluded, windows=found.windows)
    some = measured(index, found, known, held, excluded, len(documents), len(asked.examples))
    for metric in (*SWEPT, "run_union", "longest"):
        whole = every[metric].cast(pa.float64()).to_numpy(zero_copy_only=False)[layout.same]
        np.testing.assert_allclose(some.of(metric), whole, err_msg=metric)
        for part in range(len(layout)):
            shown = some.figures(part, (metric,)).get(metric)
            assert (shown is None and np.isnan(whole[part])) or shown == pytest.approx(whole[part])


def _grams(layout, part):
    return layout.grams[layout.offsets[part] : layout.offsets[part + 1]]


@pytest.mark.parametrize("seed", range(6))
def test_longer_n_grams_by_counting(seed):
    """ngram_ratio, weighted and idf of n-grams of 6 units, from runs of 4 and more, against counting words."""
    n = 6
    asked, documents = case(seed)
    index = Index.build(asked.parts, 4)
    found = found_in(index, documents)
    some = measured_longer(index, asked, found, n, None, len(documents))
    there = [_windows(document, n) for document in documents]
    times, docs = Counter(gram for own in there for gram in own), Counter(gram for own in there for gram in set(own))
    texts = asked.parts["text"].to_pylist()
    examples = Counter(
        gram for example in range(len(asked.examples))
        for gram in {gram for text in asked.parts_of(example)["text"].to_pylist() for gram in _windows(text, n)}
    )  # fmt: skip
    wanted = {name: np.full(len(texts), np.nan) for name in ("ngram_ratio", "weighted", "idf", "idf_train")}
    weights = {
        "idf": {gram: np.log((len(asked.examples) + 1) / many) for gram, many in examples.items()},
        "idf_train": {gram: np.log((len(documents) + 1) / (docs[gram] + 1)) for gram in examples},
    }
    for part, text in enumerate(texts):
        own = _windows(text, n)
        if own:
            wanted["ngram_ratio"][part] = sum(gram in times for gram in own) / len(own)
            wanted["weighted"][part] = sum(1 / times[gram] for gram in own if gram in times) / len(own)
            for name, weigh in weights.items():
                hit = sum(weigh[gram] for gram in set(own) if gram in times)
                wanted[name][part] = hit / sum(weigh[gram] for gram in set(own)) if hit else 0.0
    for name, values in wanted.items():
        np.testing.assert_allclose(np.nan_to_num(some.of(name), nan=-1), np.nan_to_num(values, nan=-1), err_msg=name)
    assert np.nansum(wanted["ngram_ratio"]) > 0


def _windows(text: str, n: int) -> list[tuple[str, ...]]:
    own = text.split()
    return [tuple(own[at : at + n]) for at in range(len(own) - n + 1)]


def test_nothing_found():
    asked, _ = case(0)
    index = Index.build(asked.parts, 4)
    found = found_in(index, ["something else"])
    held = held_by(asked, index.layout, index.n_grams)
    some = measured(index, found, counts(found, index.n_grams), held, None, 1, 12)
    longer = measured_longer(index, asked, found, 6, np.zeros(len(index.layout.grams), bool), 1)
    for each, layout in ((some, index.layout), (longer, index.layout.with_n(6))):
        assert (np.isnan(each.of("token_ratio")) == (layout.positions == 0)).all()
        assert np.nansum(each.of("token_ratio")) == 0
