"""Both reading paths of JSON lines: each by itself, and that they agree."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe.errors import DataError
from datapipe.read import jsonl
from datapipe.read.fields import Rows, as_json, mapping
from datapipe.read.streams import Block

PLAIN = mapping({"text": "text", "id": "id"}, ())
RICH = mapping({"text": "text", "id": "id", "lang": "meta.lang", "date": "date"}, ("score", "meta.n", "flag"))


def told(rows: Rows) -> dict:
    """Everything that rows say, as plain values."""
    return {
        "text": rows.text.to_pylist(),
        "line": rows.line.tolist(),
        "offset": None if rows.offset is None else rows.offset.tolist(),
        "mapped": rows.mapped,
        "extra": {name: [as_json(value) for value in column] for name, column in rows.extra.items()},
        "refused": rows.refused,
        "blank": rows.blank,
        "records": [rows.record(row) for row in range(len(rows))],
        "end": rows.end,
    }


def exact(data: bytes, names=PLAIN) -> Rows:
    return jsonl.exact(Block(data, 0, 1), names)


def both(data: bytes, names=PLAIN) -> Rows:
    """What the fast path gives, checked against the exact one."""
    block = Block(data, 1000, 7)
    fast = jsonl.fast(block, names)
    assert fast is not None, "the fast path must take this block"
    assert told(fast) == told(jsonl.exact(block, names))
    return fast


TAKEN = [
    ("one line", b'{"text":"a","id":"1"}\n', ["a"]),
    ("no newline at the end", b'{"text":"a"}', ["a"]),
    ("CRLF", b'{"text":"a"}\r\n{"text":"b"}\r\n', ["a", "b"]),
    ("blank lines between, some with blanks", b'\n{"text":"a"}\n \t\r\n\n  {"text":"b"}  \n\n', ["a", "b"]),
    ("escapes", rb'{"text":"\u00e9\ud83d\ude00\n\u0000"}' + b"\n", ["\u00e9\U0001f600\n\0"]),
    ("an escaped key", rb'{"te\u0078t":"a"}' + b"\n", ["a"]),
    ("numbers that no JSON knows, where nobody asked", b'{"text":"a","x":[NaN,Inf,-Inf,-NaN,-Infinity]}\n', ["a"]),
    ("Inf in a text stays a text", b'{"text":"\\"x\\": Inf, -NaN","x":Inf}\n', ['"x": Inf, -NaN']),
    ("a long integer where nobody asked", b'{"text":"a","x":' + b"7" * 5000 + b"}\n", ["a"]),
    ("a key given twice where nobody asked", b'{"text":"a","x":1,"x":2}\n', ["a"]),
    ("150 levels where nobody asked", b'{"text":"a","x":' + b"[" * 150 + b"]" * 150 + b"}\n", ["a"]),
    ("brackets in a text are no nesting", b'{"text":"' + b"[{" * 300 + b'"}\n', ["[{" * 300]),
    ("a mark inside a text is a character", '{"text":"\ufeffa\ufeff"}\n'.encode(), ["\ufeffa\ufeff"]),
    ("no text and a null text", b'{"text":"a"}\n{"id":"x"}\n{"text":null}\n{"text":"b"}\n', ["a", "b"]),
]


@pytest.mark.parametrize("sentence, data, texts", TAKEN, ids=[row[0] for row in TAKEN])
def test_fast_path_takes_what_is_right_and_agrees(sentence, data, texts):
    assert both(data).text.to_pylist() == texts


LEFT = [
    ("two objects on a line", b'{"text":"a"}{"text":"b"}\n'),
    ("two on one line, and an empty object to make up the count", b'{"text":"a"} {"text":"b"}\n\n'),
    ("null as the first value, which kills the parser", b'null\n{"text":"a"}\n'),
    ("nothing", b""),
    ("blank lines only", b" \n\n"),
    ("invalid UTF-8 where nobody asked", b'{"text":"a","x":"\xff"}\n'),
    ("a key given twice", b'{"text":"a","text":"b"}\n'),
    ("an object over two lines", b'{"text":\n"a"}\n'),
    ("a lone surrogate", rb'{"text":"\ud800"}' + b"\n"),
    ("a mark at the start of a line", b'{"text":"a"}\n\xef\xbb\xbf{"text":"b"}\n'),
    ("a number for a text", b'{"text":1}\n'),
    ("a raw TAB in a string", b'{"text":"a\tb"}\n'),
    ("250 levels", b'{"text":"a","x":' + b"[" * 250 + b"]" * 250 + b"}\n"),
]


@pytest.mark.parametrize("sentence, data", LEFT, ids=[row[0] for row in LEFT])
def test_fast_path_leaves_what_it_might_read_otherwise(sentence, data):
    assert jsonl.fast(Block(data, 0, 1), PLAIN) is None


def test_extra_values_that_a_double_cannot_hold_go_the_exact_way():
    names = mapping({"text": "text"}, ("n",))
    for number in ("9007199254740993", "NaN", "Inf"):
        assert jsonl.fast(Block(f'{{"text":"a","n":1.5}}\n{{"text":"b","n":{number}}}\n'.encode(), 0, 1), names) is None
    big = b'{"text":"a","n":9007199254740993}\n{"text":"b","n":-5}\n'
    assert both(big, names).extra == {"n": [9007199254740993, -5]}


def test_numbers_agree_however_they_are_written():
    names = mapping({"text": "text", "id": "id"}, ("n",))
    data = b"".join(b'{"text":"a","id":%s,"n":%s}\n' % (n, n) for n in (b"3", b"3.0", b"3e0", b"0.1", b"-0.0", b"1e15"))
    found = both(data, names)
    assert found.extra["n"] == [3, 3, 3, 0.1, 0, 10**15]
    assert found.mapped["id"] == ["3", "3", "3", "0.1", "0", "1000000000000000"]


def test_objects_and_lists_as_extra_values():
    names = mapping({"text": "text", "id": "id"}, ("tags",))
    data = b'{"text":"a","id":[1.0,"x"],"tags":["b",{"z":1.0,"a":null}]}\n'
    assert jsonl.fast(Block(data, 0, 1), names) is None
    found = exact(data, names)
    assert as_json(found.extra["tags"][0]) == '["b",{"a":null,"z":1}]'
    assert found.mapped["id"] == ['[1,"x"]']


REASONS = [
    (b'{"text":"a"} x', "quarantined", "trailing data"),
    (b'{"text":"a"}{"text":"b"}', "quarantined", "trailing data"),
    (b"[1]", "quarantined", "not an object"),
    (b"null", "quarantined", "not an object"),
    (b'"a"', "quarantined", "not an object"),
    (b'{"text":"a', "quarantined", "not JSON: string without end"),
    (b'{"text":"a\tb"}', "quarantined", "not JSON: raw control character in a string"),
    (rb'{"text":"a\q"}', "quarantined", "not JSON: unknown escape"),
    (b'{"text":', "quarantined", "not JSON: syntax"),
    (b"{'text':1}", "quarantined", "not JSON: syntax"),
    (b"}", "quarantined", "not JSON: syntax"),
    (b'{"text":"a","x":Infx}', "quarantined", "not JSON: syntax"),
    (b'{"text":"\xff"}', "quarantined", "not UTF-8"),
    (b'{"text":"a","text":"b"}', "quarantined", "repeated key"),
    (b'{"text":"a","meta":{"lang":"x","lang":"y"}}', "quarantined", "repeated key"),
    (b'{"text":"a","score":{"x":1,"x":2}}', "quarantined", "repeated key"),
    (b'{"text":"a","score":NaN}', "quarantined", "not a finite number"),
    (b'{"text":"a","score":[1e999]}', "quarantined", "not a finite number"),
    (b'{"text":"a","id":' + b"7" * 5000 + b"}", "quarantined", "number too long"),
    (b'{"text":"a","x":' + b"[" * 5000 + b"]" * 5000 + b"}", "quarantined", "nested too deep"),
    (b'{"id":"a"}', "rejected", "missing text"),
    (b"{}", "rejected", "missing text"),
    (b'{"text":null}', "rejected", "null text"),
    (b'{"text":4}', "rejected", "text is not a string"),
    (b'{"text":' + b"7" * 5000 + b"}", "rejected", "text is not a string"),
    (b'{"text":{"text":"a"}}', "rejected", "text is not a string"),
]


@pytest.mark.parametrize("record, kind, reason", REASONS)
def test_a_refused_line_says_why_and_where(record, kind, reason):
    data = b'\n{"text":"good"}\n' + record + b"\n\n"
    found = exact(data, RICH)
    (refused,) = found.refused
    assert (refused.kind, refused.reason, refused.line, refused.offset) == (kind, reason, 3, 17)
    assert refused.length == len(record)
    assert (len(found), found.blank) == (1, 2)


def test_lone_surrogates_become_replacement_characters_and_are_counted():
    data = rb'{"id":"\udc00","text":"a\ud800b"}' + b"\n" + rb'{"text":"\ud83d\ude00"}' + b"\n"
    found = exact(data)
    assert found.text.to_pylist() == ["a\ufffdb", "\U0001f600"]
    assert found.mapped["id"] == ["\ufffd", None]
    assert found.repaired == 1


def test_a_mark_at_the_start_of_file_or_line_is_no_content():
    marked = b'\xef\xbb\xbf{"text":"a"}\n\xef\xbb\xbf{"text":"b"}\n\xef\xbb\xbf\n'
    found = jsonl.rows(Block(marked, 0, 1), PLAIN)
    assert (found.text.to_pylist(), found.line.tolist(), told(found)["offset"], found.blank) == (
        ["a", "b"],
        [1, 2],
        [3, 19],
        1,
    )
    assert found.end == (len(marked), 4)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-16", "utf-32"])
def test_another_encoding_is_named(encoding):
    with pytest.raises(DataError, match=f"f.jsonl: is {encoding.upper()[:6]}.*expected UTF-8"):
        jsonl.check_encoding('{"text": "a"}'.encode(encoding)[:4], "f.jsonl")


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
VALUE = st.one_of(TEXT, st.integers(-(2**54), 2**54), st.floats(), st.booleans(), st.none(),
                  st.lists(st.integers(0, 3), max_size=2))  # fmt: skip
RECORD = st.fixed_dictionaries(
    {},
    optional={
        "text": st.one_of(TEXT, TEXT, TEXT, st.none(), VALUE),
        "id": st.one_of(TEXT, st.integers()),
        "date": TEXT,
        "score": st.one_of(st.integers(-5, 5), st.floats(-10, 10), VALUE),
        "flag": st.booleans(),
        "meta": st.one_of(
            st.fixed_dictionaries({}, optional={"lang": TEXT, "n": st.integers(-9, 9)}), st.none(), VALUE
        ),
        "other": VALUE,
    },
)
PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"\\",
    b"\\ud800",
    b"\\udc00",
    b"NaN",
    b"Inf",
    b"-NaN",
    b"-Inf",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b" ",
    b"\t",
    b"1e999",
    b"-",
    b"0",
    b"null",
    b"true",
    b'"text":',
    b'"text":"t"',
    b'"x":1,',
    b"{}",
    b"\x0c",
    b"//",
]


@st.composite
def mutated_line(draw) -> bytes:
    """A JSON line, whole or with some bytes put in or taken out."""
    line = json.dumps(draw(RECORD), ensure_ascii=draw(st.booleans())).encode()
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(st.sampled_from(PIECES)) + line[at + draw(st.sampled_from([0, 0, 1, 3])) :]
    return line


@settings(max_examples=120, deadline=None)
@given(st.lists(mutated_line(), min_size=1, max_size=4), st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans())
def test_both_paths_agree_on_every_block_that_the_fast_one_takes(records, end, last):
    data = end.join(records) + (end if last else b"")
    for names in (PLAIN, RICH):
        block = Block(data, 40, 3)
        fast = jsonl.fast(block, names)
        if fast is not None:
            assert told(fast) == told(jsonl.exact(block, names))


def test_every_line_of_the_peers_broken_file_goes_alike_through_both_paths(shared):
    """B08: broken lines of every kind between good ones."""
    data = (shared / "cases/B08/lines.jsonl").read_bytes()
    found = exact(data)
    assert found.mapped["id"] == ["k1", "k8", "k14", "k15"]
    assert [one.line for one in found.refused] == [2, 5, 6, 7, 9, 10, 11, 12, 13]
    assert found.blank == 2
    assert jsonl.fast(Block(data, 0, 1), PLAIN) is None
    good = np.isin(np.arange(1, 16), found.line)
    for number, line in enumerate(data.split(b"\n")[:15]):
        block = Block(line + b"\n", 0, number + 1)
        fast = jsonl.fast(block, PLAIN)
        assert (fast is not None) == bool(good[number])
        assert told(jsonl.rows(block, PLAIN)) == told(jsonl.exact(block, PLAIN))
