"""Signals of characters against cases made by hand and a slow twin, and the preset that stands on them."""

import json
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import junk
import naive
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fixtures import readable

from datapipe import signals, text
from datapipe.kernels import make_unicode
from datapipe.kernels.characters import BLOCK, UNITS
from datapipe.manifest import presets
from datapipe.signals import characters
from datapipe.signals.measured import Measured

NAMES = [name for name, signal in signals.SIGNALS.items() if signal.__module__ == characters.__name__]
PUNCTUATION = {chr(cp) for low, high in make_unicode.TERMINAL for cp in range(low, high + 1)}
PUNCTUATION |= {*make_unicode.MARKS, *map(chr, [*range(9), *range(11, 32), *range(127, 160)])}

CASES: list[tuple[str, Mapping[str, float | None]]] = [
    ("", dict.fromkeys(NAMES) | dict.fromkeys(["char_count", "letter_count", "latin_letter_count"], 0)),
    (" \u3000\n", {"char_count": 3, "letter_ratio": None, "alnum_ratio": 0.0, "mean_unit_length": None}),
    ("été Ωя中 ª", {"char_count": 9, "letter_count": 7, "latin_letter_count": 4}),  # ª is a letter, of Latin
    ("Ａｂ", {"letter_count": 2, "latin_letter_count": 2}),  # full width
    ("a1.", {"letter_ratio": 1 / 3, "digit_ratio": 1 / 3, "punctuation_ratio": 1 / 3, "alnum_ratio": 2 / 3}),
    ("一二三", {"letter_ratio": 1.0, "digit_ratio": 0.0, "alnum_ratio": 1.0}),  # Han numerals are letters
    ("½①Ⅷ٣", {"digit_ratio": 1.0, "letter_ratio": 0.0, "alnum_ratio": 1.0, "unit_char_ratio": 1.0}),
    ("n\u0303 ", {"letter_ratio": 0.5, "unit_char_ratio": 1.0, "alnum_ratio": 1 / 3, "mean_unit_length": 2.0}),
    ("co\xadop", {"unit_char_ratio": 0.8, "mean_unit_length": 4.0}),  # what folds to nothing is in no unit
    ("我们 ok", {"mean_unit_length": 4 / 3, "unit_char_ratio": 1.0}),
    ("a≠≸", {"unit_char_ratio": 1 / 3}),  # signs that decompose into a sign and a mark, and compose to themselves
    ("(a) [b]!", {"unit_char_ratio": 2 / 7, "punctuation_ratio": 5 / 7}),
    ("a.... b...... c…", {"ellipsis_unit_ratio": 4 / 3}),  # four dots are one, six are two
    ("...", {"ellipsis_unit_ratio": None, "hash_unit_ratio": None}),  # no units
    ("a..\u200b.b", {"ellipsis_unit_ratio": 0.0}),
    ("# a ##b", {"hash_unit_ratio": 1.5}),
    ("\ufffda\ufffd.", {"replacement_ratio": 0.5}),
    ("a\t\r\n\x00\x7f\x85\x9f\xa0", {"control_ratio": 4 / 9}),  # tab, return and newline are none, U+0085 is one
    ("ab\ncdef", {"mean_line_length": 3.0, "max_line_length": 4, "newline_char_ratio": 1 / 7}),
    ("ab\ncdef\n", {"mean_line_length": 3.0, "max_line_length": 4}),  # a last newline begins no line
    ("ab\n\ncdef\n\n", {"mean_line_length": 1.5}),  # blank lines are lines
    ("ab\r\ncd\u2028e", {"mean_line_length": 3.5, "max_line_length": 4}),  # of newlines only
    ("\n", {"mean_line_length": 0.0, "max_line_length": 0, "newline_char_ratio": 1.0}),
    ("中" * 300 + "\n" + "é" * 400, {"char_count": 701, "max_line_length": 400, "letter_count": 700}),
]


@pytest.mark.parametrize("value,wanted", CASES, ids=[repr(value[:12]) for value, _ in CASES])
def test_by_hand(value: str, wanted: Mapping[str, float | None]) -> None:
    texts = pa.array(["other", value])[1:]
    assert {name: signals.SIGNALS[name](texts)[0].as_py() for name in wanted} == wanted


def twin(value: str) -> dict[str, float | None]:
    """All signals of this module, in obvious code."""
    units = len(naive.units(value))
    inked = sum(c not in naive.WHITE_SPACE for c in value)
    letters = [c for c in value if unicodedata.category(c).startswith("L")]
    in_units = sum(any(naive.role(d) != "other" for d in naive.fold(c)) for c in value)
    controls = sum(unicodedata.category(c) == "Cc" and c not in "\t\n\r" for c in value)
    lines = value.split("\n")
    if not lines[-1]:
        lines.pop()
    return {
        "char_count": len(value),
        "letter_count": len(letters),
        "latin_letter_count": sum("LATIN" in unicodedata.name(c, "").split() or c in "ªº" for c in letters),
        "letter_ratio": over(len(letters), inked),
        "unit_char_ratio": over(in_units, inked),
        "digit_ratio": over(sum(c.isnumeric() and not c.isalpha() for c in value), inked),
        "punctuation_ratio": over(sum(c in PUNCTUATION for c in value), inked),
        "alnum_ratio": over(sum(map(str.isalnum, value)), len(value)),
        "newline_char_ratio": over(value.count("\n"), len(value)),
        "replacement_ratio": over(value.count("\ufffd"), len(value)),
        "control_ratio": over(controls, len(value)),
        "mean_line_length": over(sum(map(len, lines)), len(lines)),
        "max_line_length": max(map(len, lines), default=None),
        "mean_unit_length": over(in_units, units),
        "hash_unit_ratio": over(value.count("#"), units),
        "ellipsis_unit_ratio": over(value.count("...") + value.count("…"), units),
    }


def over(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def assert_equal_to_twin(values: list[str]) -> None:
    found = {name: column.to_pylist() for name, column in zip(NAMES, measured(values, NAMES), strict=True)}
    for i, value in enumerate(values):
        assert {name: column[i] for name, column in found.items()} == twin(value), value[:200]


def measured(values: list[str], names: list[str]) -> list[pa.ChunkedArray]:
    return signals.measure(pa.array(values, pa.large_string()), names)


PIECES = [*"a1.#\n\r\t <=>…中のé가½ﷺ㈱\u0338\xad\x85\ufffd😀", "...", "e\u0301", "ก\u0e31", "a" * 50]


@settings(deadline=None)
@given(st.lists(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5))).map("".join)))
def test_anything(values: list[str]) -> None:
    assert_equal_to_twin(values)


def test_what_folds_to_several_things() -> None:
    """Whether a code point is in a unit is decided by its folding, not by its decomposition."""
    assert_equal_to_twin([chr(cp) for cp in range(0x30000) if unicodedata.decomposition(chr(cp))])


@pytest.mark.parametrize("character", ["a", "é", "中", "😀", ".", "\n", "#", "\x01", "…"])
def test_around_a_block(character: str) -> None:
    size = len(character.encode())
    lengths = {n + k for n in (BLOCK, BLOCK // size, 2 * BLOCK // size) for k in range(-2, 3)}
    assert_equal_to_twin([character * n + end for n in sorted(lengths) for end in ("", "b", "中")])


def test_units_are_counted_as_they_are_read() -> None:
    """Every assigned code point, alone, in a word, and before and after the stroke that joins signs."""
    points = [chr(cp) for cp in range(0x30000) if unicodedata.category(chr(cp)) not in ("Cs", "Cn")]
    texts = pa.array(
        [form for c in points for form in (c, f"a{c}b", f"={c}\u0338x", f"中{c}\u0301")], pa.large_string()
    )
    counted = characters.counts(Measured(texts))[:, UNITS]
    assert np.array_equal(counted, text.unit_counts(texts))


FILES = ("chinese.jsonl.gz", "code.parquet", "web.jsonl.zst", "wiki.jsonl")


def fixture_texts(name: str) -> list[str]:
    """The texts of a file, escaped halves of surrogate pairs as U+FFFD."""
    records, _ = readable(name)
    found = [str(value) for record in records for key, value in record.items() if key in ("text", "content", "body")]
    return [value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for value in found]


@pytest.mark.parametrize("name", FILES)
def test_the_fixtures(name: str) -> None:
    values = fixture_texts(name)
    assert len(values) > 70
    assert_equal_to_twin(values)


def test_types_and_no_texts() -> None:
    whole = {"char_count", "letter_count", "latin_letter_count", "max_line_length"}
    for texts in (pa.array([], pa.string()), pa.array(["", "a"], pa.large_string())[:1]):
        for name in NAMES:
            assert signals.SIGNALS[name](texts).type == (pa.int64() if name in whole else pa.float64()), name


def test_text_that_is_not_utf8_is_not_read_beyond_its_end() -> None:
    for broken in (b"\xe4\xb8", b"\xf0\x9f\x98", b"\xc3", b"a\xffb"):
        offsets = pa.py_buffer(np.array([0, len(broken)], np.int64))
        texts = pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(broken))
        assert characters.char_count(texts).to_pylist() == [len(broken)]


# --- the preset quality_units ----------------------------------------------------------------------------------

GOOD = [
    "靜夜思\n李白\n\n床前明月光，疑是地上霜。\n舉頭望明月，低頭思故鄉。",
    "登鸛雀樓\n白日依山盡，黃河入海流。欲窮千里目，更上一層樓。",
    "學而時習之，不亦說乎？有朋自遠方來，不亦樂乎？人不知而不慍，不亦君子乎？",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "나 보기가 역겨워 가실 때에는 말없이 고이 보내 드리우리다. 영변에 약산 진달래꽃 아름 따다 가실 길에 뿌리우리다.",
    "ห้องสมุดเปิดทุกวันตั้งแต่เช้าจนถึงเย็น และปิดเฉพาะวันหยุดราชการ",
    (
        "Inuit tamarmik inunngorput nammineersinnaassuseqarlutik, assigiimmillu ataqqinassuseqarlutillu. "
        "Silaqassusermik tarnillu nalunngissusianik pilersugaapput, qatanngutigiittullu iliorfigeqatigiittariaqarput."
    ),
    "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.",
    "Die Donaudampfschifffahrtsgesellschaft stellte ihren Betrieb im Winter ein, weil der Fluss bei Linz gefroren war.",
    "Nuair a bhí an geimhreadh thart, chuaigh na hiascairí amach arís, agus tháinig siad abhaile gan iasc ar bith.",
    "كان الشتاء طويلا في تلك السنة، ولم يخرج الصيادون إلى البحر إلا بعد أن ذاب الثلج عن الجبال كلها.",
    "जब जाड़ा बीत गया तब मछुआरे फिर समुद्र में गए, और शाम को खाली हाथ घर लौट आए।",
    (
        "NAME\n       wc - print newline, word, and byte counts\n\nSYNOPSIS\n       wc [OPTION]... [FILE]\n\n"
        "DESCRIPTION\n       -c, --bytes\n              print the byte counts\n"
    ),
    "The winter was long that year, and the fishermen did not go out until the snow had melted from all of the hills.",
    "1. Mix 200 g of flour with 3 eggs. 2. Add 1/4 l of milk. 3. Let it rest for 20 minutes, then fry it in butter.",
    "I said: no. She said: why not? Then nobody said anything for a while, and the kettle began to sing...",
    "## Setup\n\nInstall the package, then run it once so that it can make its folders:\n\n    pip install thing\n",
    "ལོ་དེའི་དགུན་ཁ་རིང་པོ་ཡོད། ཉ་པ་ཚོ་ཁ་བ་ཚང་མ་མ་བཞུ་བར་མཚོ་ལ་འགྲོ་མ་ཐུབ།",
    "Vinteren var lang det året, og fiskerne dro ikke ut før snøen hadde smeltet fra åsene. Det var lite fisk.",
    "Η χειμωνιά ήταν μακριά εκείνη τη χρονιά και οι ψαράδες δεν βγήκαν στη θάλασσα πριν λιώσουν τα χιόνια.",
    "Năm ấy mùa đông rất dài, và những người đánh cá chỉ ra khơi khi tuyết trên các ngọn đồi đã tan hết.",
]
RARE = {"unit_count > 1000000": ["la " * 1_000_001] * 20}  # what no kind of junk has


def broken(values: list[str], preset: str) -> dict[str, np.ndarray]:
    """For each rule of a preset, which documents break it."""
    rules: dict[str, np.ndarray] = {}
    keep = presets.load(preset).keep
    for (name, bound), column in zip(keep.items(), measured(values, list(keep)), strict=True):
        number = column.cast(pa.float64()).to_numpy()
        rules[f"{name} is null"] = np.isnan(number)
        rules |= {f"{name} < {bound['min']}": number < bound["min"]} if "min" in bound else {}
        rules |= {f"{name} > {bound['max']}": number > bound["max"]} if "max" in bound else {}
    return rules


def test_good_documents_stay() -> None:
    assert len(GOOD) > 20
    for rule, against in broken(GOOD, "quality_units").items():
        assert not against.any(), (rule, np.array(GOOD)[against])


def test_every_rule_fires() -> None:
    values = [value for kind in junk.KINDS for value in junk.documents(kind, 40)]
    found = broken(values, "quality_units")
    for rule, against in found.items():
        if not rule.endswith("null"):
            assert against.sum() >= 20 or broken(RARE[rule], "quality_units")[rule].sum() >= 20, rule
            assert (~against).sum() >= 20, rule


@pytest.mark.parametrize("kind", junk.KINDS)
def test_junk_leaves(kind: str) -> None:
    rules = broken(junk.documents(kind, 40), "quality_units")
    assert np.mean(np.any(list(rules.values()), axis=0)) >= junk.CAUGHT.get(kind, 1), kind


@pytest.mark.slow
def test_real_text_stays(shared: Path) -> None:
    """Of classical Chinese, of poems, and of manual pages in each of their languages, at least 95 %."""
    groups: dict[str, list[str]] = {}
    for name in ("chinese", "manpages"):
        with (shared / "data" / "corpus" / f"{name}.jsonl.zst").open("rb") as file:
            lines = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file).read().split(b"\n")
        for record in map(json.loads, filter(None, lines)):
            if name == "manpages" or record["lang"] in ("lzh", "zh-Hant"):
                groups.setdefault(f"{name} {record['lang']}", []).append(record["text"])
    assert len(groups) == 11
    for group, values in groups.items():
        gone = np.any(list(broken(values, "quality_units").values()), axis=0)
        assert gone.mean() <= 0.05, (group, gone.mean())
