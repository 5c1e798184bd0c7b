"""Losses are sums over targets, by source and over all; bits per byte know what an id spells; a look moves nothing."""

import json
import math
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tokenizers  # noqa: E402
import training  # noqa: E402

from datapipe import feed, tokens  # noqa: E402
from datapipe.manifest import TokenizerFile  # noqa: E402
from datapipe.train import evaluate, run  # noqa: E402
from datapipe.train.parallel import Parallel  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    return training.packed(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def cyclic(tmp_path_factory):
    return training.cyclic(tmp_path_factory.mktemp("cyclic"))


def begun(builds, dataset, *settings, build="packed", **keys):
    return run.begin(training.manifest(builds, *settings, build=build, **keys), dataset, Parallel(), builds)


def slow(model, rows, widths):
    """[nats, targets, nats of targets with bytes, bytes] of rows, token by token in float64; then of each source."""
    found = np.zeros((1 + 2, 4))
    for row in rows:
        start = 0
        for number, size in enumerate(row.seg_len):
            ids = row.input_ids[0, start : start + size].astype(np.int64)
            with torch.no_grad():  # each document alone: what packing must not change
                logits = model(torch.from_numpy(ids[None])).double().log_softmax(-1)[0]
            for at in range(size - 1):
                nats, width = -float(logits[at, ids[at + 1]]), int(widths[ids[at + 1]])
                for place in (0, 1 + row.seg_source[number]):
                    found[place] += [nats, 1, nats if width else 0.0, width]
            start += size
    return found


@pytest.mark.parametrize("rows, micro", [(16, None), (4, 2), (3, None)])
def test_a_loss_is_a_sum_over_targets(builds, monkeypatch, rows, micro):
    widths = np.arange(31) % 5
    monkeypatch.setattr(evaluate, "_widths", lambda build: widths)
    with feed.open(builds / "packed") as dataset:
        made = begun(builds, dataset, data={"global_batch_rows": rows, "microbatch_rows": micro}, model=training.GPT)
        look = evaluate.look(made)
        split = dataset.validation
        expected = slow(made.model, [split[i] for i in range(split.rows)], widths)
        sample = slow(made.model, [dataset.train[int(i)] for i in made.loader.batch_at(0).row_ids], widths)[0]
    given = [look.validation, *(look.sources[name] for name in ("a", "b"))]
    for sums, (nats, targets, spelt, width) in zip(given, expected, strict=True):
        assert (sums.targets, sums.bytes) == (targets, width)
        assert sums.nats == pytest.approx(nats, rel=1e-5)
        assert sums.spelt == pytest.approx(spelt, rel=1e-5)
        assert sums.loss == sums.nats / sums.targets
        assert sums.bits_per_byte == pytest.approx(spelt / math.log(2) / width, rel=1e-5)
    assert (look.train.nats, look.train.targets) == (pytest.approx(sample[0], rel=1e-5), sample[1])


def test_some_batches_of_validation(builds):
    with feed.open(builds / "packed") as dataset:
        few = evaluate.look(begun(builds, dataset, "data.global_batch_rows=2", "evaluate.batches=1")).validation
        assert few is not None
        assert few.targets == dataset.validation[0:2].n_targets.sum()


def test_ids_that_spell_no_bytes_have_no_bits_per_byte(builds):
    with feed.open(builds / "packed") as dataset:
        look = evaluate.look(begun(builds, dataset))
    assert look.validation is not None
    assert look.validation.bits_per_byte is None
    assert look.validation.bytes is None
    assert json.loads(json.dumps(look.as_json()))["validation"]["bits_per_byte"] is None


def test_nothing_held_out_and_the_strata_of_the_cycle(cyclic):
    with feed.open(cyclic / "cyclic16") as dataset:
        look = evaluate.look(begun(cyclic, dataset, "evaluate.strata=cyclic", build="cyclic16"))
        without = evaluate.look(begun(cyclic, dataset, build="cyclic16"))
    assert (look.validation, look.sources) == (None, {})
    assert [one.name for one in look.strata][:2] == ["in distribution", "reversed"]
    assert without.strata == ()
    assert evaluate.Look.of(json.loads(json.dumps(look.as_json()))) == look


def byte_level(*specials):
    """A tokenizer.json of bytes, "th", and what is given."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: n for n, token in enumerate([*alphabet, "th", "é".encode().decode("latin-1")])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [("t", "h"), ("Ã", "©")]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(list(specials))
    return made


@pytest.mark.parametrize(
    "control", [{"eos": "<|end|>", "bos": None}, {"eos": "<|end|>", "bos": "<|begin|>"}, {"eos": None, "bos": None}]
)
def test_bytes_that_an_id_stands_for(control):
    made = byte_level("<|end|>", "<|begin|>", "<|other|>")
    data = made.to_str().encode()
    spec = TokenizerFile(file="tokenizer.json", **control)
    widths = evaluate.spelt(tokens.load(data, spec, "tokenizer.json"))
    assert widths is not None
    text = "the thé 数"
    ids = made.encode(text).ids
    assert int(widths[ids].sum()) == len(text.encode())
    assert widths[made.token_to_id("th")] == widths[made.token_to_id("Ã©")] == 2
    for name in ("<|end|>", "<|begin|>", "<|other|>"):
        assert widths[made.token_to_id(name)] == 0, name


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_look_moves_neither_random_numbers_nor_the_loader(builds, dropout):
    """Training with many looks gives the bits of training with the two that every run has."""
    keys = {"model": training.GPT | {"dropout": dropout}, "steps": 6, "checkpoint": {"every": None}}
    found = []
    for name, every in (("seldom", None), ("often", 1)):
        made = training.manifest(builds, build="packed", name=f"{name}{dropout}", evaluate={"every": every}, **keys)
        report = run.train(made)
        found.append(training.ends(report.folder))
        assert len(report.facts["looks"]) == (2 if every is None else 7)
    (weights, steps), (others, theirs) = found
    assert training.same(weights, others)
    assert steps == theirs


def test_still_leaves_modes_and_random_numbers(builds):
    with feed.open(builds / "packed") as dataset:
        made = begun(builds, dataset, model=training.GPT | {"dropout": 0.5})
        before = torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
        look = evaluate.look(made)
        assert evaluate.look(made) == look  # without dropout
        assert made.model.training
        assert made.loader.position == (0, 0)
        after = torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
