"""Tasks whose answers are known: what each stratum asks, how it is counted, and the data of the positive control."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from datapipe.errors import ManifestError  # noqa: E402
from datapipe.train import config, tasks  # noqa: E402
from datapipe.train import model as models  # noqa: E402
from datapipe.train.loss import IGNORE  # noqa: E402
from datapipe.train.step import inputs  # noqa: E402

torch.set_num_threads(1)
LENGTH = 13


def reference(**keys):
    torch.manual_seed(17)
    given = {"kind": "reference", "width": 16, "heads": 2, "layers": 1, "hidden": 32} | keys
    return models.build(config.Model.model_validate(given), 16, LENGTH - 1).eval()


def arcs(rows):
    return {(int(a), int(b)) for row in rows for a, b in itertools.pairwise(row)}


def test_the_strata_ask_for_what_their_names_say():
    rows = {name: made(LENGTH) for name, (made, _) in tasks.STRATA.items()}
    for name, step in [("in distribution", 1), ("reversed", -1), ("step 2", 2), ("step 3", 3)]:
        assert arcs(rows[name]) == {(s, (s + step) % 16) for s in range(16)}, name
    assert sorted(tasks.REMAP) == list(range(16))
    # a whole cycle under other names, of which no pair belongs to another stratum
    assert len(arcs(rows["remapped"])) == 16
    for name in rows.keys() - {"remapped"}:
        assert not arcs(rows["remapped"]) & arcs(rows[name]), name
    assert all(len(made) == 16 and sorted(made[:, 0]) == list(range(16)) for made in rows.values())


class Successor(torch.nn.Module):
    """Knows the next symbol under +step by heart, and nothing else; sees `positions` of a row."""

    def __init__(self, step, positions=None, vocabulary=16):
        super().__init__()
        self.token = torch.nn.Embedding(vocabulary, 1)
        self.step = step
        if positions:
            self.position = torch.nn.Embedding(positions, 1)

    def forward(self, ids, *_):
        return 20.0 * torch.nn.functional.one_hot((ids + self.step) % 16, 16).float()


@pytest.mark.parametrize(
    "step, solved", [(1, "in distribution"), (-1, "reversed"), (2, "step 2"), (3, "step 3"), (5, None)]
)
def test_a_table_of_pairs_solves_its_own_stratum_alone(step, solved):
    found = {one.name: one for one in tasks.strata(Successor(step), LENGTH)}
    assert list(found) == [*tasks.STRATA, "longer positions"]
    for name, one in found.items():
        assert one.of == (16 * 12)
        if name == solved or (name == "longer positions" and step == 1):
            assert (one.right, one.beats_chance) == (one.of, True)
            assert one.loss is not None
            assert one.loss < 1e-6
        elif name == "remapped":
            assert one.right == one.of * sum((b - a) % 16 == step % 16 for a, b in arcs(tasks.remapped(LENGTH))) / 16
        else:
            assert one.right == 0
            assert not one.beats_chance
            assert one.loss is not None
            assert one.loss > math.log(16)


@pytest.mark.parametrize("positions, of", [(None, 12), (24, 12), (30, 12), (20, 8), (12, 0)])
def test_longer_positions_are_asked_where_the_model_has_them(positions, of):
    longer = tasks.strata(Successor(1, positions), LENGTH)[-1]
    assert (longer.name, longer.of, longer.right) == ("longer positions", 16 * of, 16 * of)
    if not of:
        assert (longer.low, longer.high, longer.loss, longer.share) == (0.0, 1.0, None, None)
        assert "12 positions" in longer.note
        assert not longer.beats_chance
    assert tasks.Stratum.of_json(longer.as_json()) == longer


def test_another_vocabulary_is_refused():
    with pytest.raises(ManifestError, match="16 symbols and the build's tokenizer 2048"):
        tasks.strata(Successor(1, vocabulary=2048), LENGTH)


def test_counts_intervals_and_losses():
    logits = torch.zeros(1, 4, 16)
    logits[0, :, 3] = 5.0
    labels = torch.tensor([[3, 3, 4, IGNORE]])
    found = tasks.stratum("some", logits, labels)
    whole = math.log(math.exp(5) + 15)
    assert (found.right, found.of, found.share) == (2, 3, 2 / 3)
    assert found.loss == pytest.approx((2 * (whole - 5) + whole) / 3, rel=1e-6)
    for end in (found.low, found.high):  # where 2 of 3 lie 1.96 standard deviations of `end` away from it
        assert abs(2 / 3 - end) == pytest.approx(1.959963984540054 * math.sqrt(end * (1 - end) / 3), rel=1e-9)
    assert found.low < 2 / 3 < found.high


@pytest.mark.parametrize("right, beats", [(0, False), (12, False), (13, False), (18, False), (19, True), (192, True)])
def test_better_than_chance_is_what_the_whole_interval_says(right, beats):
    """12 of 192 is chance itself; 18 are more, and may be luck."""
    logits = torch.nn.functional.one_hot(torch.zeros(192, dtype=torch.long), 16)[None].float()
    labels = torch.tensor([[0] * right + [1] * (192 - right)])
    assert tasks.stratum("some", logits, labels).beats_chance is beats


@pytest.mark.parametrize("kind", ["reference", "gpt"])
def test_strata_leave_the_model_and_random_numbers_alone(kind):
    model = reference(kind=kind)
    before, state = {name: each.clone() for name, each in model.state_dict().items()}, torch.get_rng_state()
    tasks.strata(model, LENGTH)
    tasks.relabelled_stratum(model, LENGTH)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


@pytest.mark.parametrize("keys", [{}, {"kind": "gpt"}, {"kind": "gpt", "tied": True}])
def test_a_relabelled_model_answers_remapped_as_the_model_answers_the_cycle(keys):
    model, names = reference(**keys), torch.tensor(tasks.REMAP)
    other = tasks.relabelled(model)
    with torch.no_grad():
        ids = torch.from_numpy(tasks.cycle(1, LENGTH))
        logits, renamed = model(ids[:, :-1]), other(names[ids][:, :-1])
    assert torch.allclose(renamed[..., names], logits, atol=1e-6)
    ours, theirs = tasks.strata(model, LENGTH)[0], tasks.relabelled_stratum(model, LENGTH)
    assert (theirs.right, theirs.loss) == (ours.right, pytest.approx(ours.loss, rel=1e-5))


def test_the_control_can_be_inferred_from_two_symbols_and_not_from_one():
    ids, labels, segments, positions = inputs(tasks.control(LENGTH))
    assert ids.shape == (256, 12)
    assert segments is None
    assert (positions == torch.arange(12)).all()
    assert (labels[:, 0] == IGNORE).all()  # the step is not known yet
    assert (labels[:, 1:] == (2 * ids[:, 1:] - ids[:, :-1]) % 16).all()
    for place in range(1, 12):
        pairs = Counter(zip(ids[:, place].tolist(), labels[:, place].tolist(), strict=True))
        assert pairs == {(a, b): 1 for a in range(16) for b in range(16)}
    assert int(tasks.control(LENGTH).n_targets.sum()) == int((labels != IGNORE).sum()) == 256 * 11


class LastTwo(torch.nn.Module):
    """Continues the step that the last two symbols show, where they are of one segment; else says +0."""

    def forward(self, ids, segments=None, _=None):
        before = torch.cat((ids[:, :1], ids[:, :-1]), 1)
        if segments is not None:
            same = segments == torch.cat((segments[:, :1], segments[:, :-1]), 1)
            before = torch.where(same, before, ids)
        return 20.0 * torch.nn.functional.one_hot((2 * ids - before) % 16, 16).float()


def test_context_that_is_cut_away_leaves_chance():
    context, alone = tasks.control_strata(LastTwo(), LENGTH)
    assert (context.right, context.of) == (256 * 11, 256 * 11)
    assert alone.share == 1 / 16  # whatever is answered to a symbol: every next one follows it once
    assert not alone.beats_chance
    with torch.no_grad():
        found = tasks.control_strata(reference(), LENGTH)
    assert found[1].share == 1 / 16


def test_rows_of_ids_are_a_batch_of_the_feed():
    ids = np.arange(12).reshape(2, 6) % 16
    batch = tasks.batch(ids)
    assert batch.labels.tolist() == [[1, 2, 3, 4, 5, IGNORE], [7, 8, 9, 10, 11, IGNORE]]
    assert batch.n_targets.tolist() == [5, 5] == (batch.labels != IGNORE).sum(axis=1).tolist()
    assert [len(part) for part in batch.split(1)] == [1, 1]
