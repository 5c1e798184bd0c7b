"""Reports of audits that never ran, for the page: of any size, in several scripts, with whatever text one gives."""

import random
from collections.abc import Sequence

from datapipe.auditing import report as r

PROSE = (
    "The river rises in the western hills and turns south at the old mill, where the road crosses it on a bridge of "
    "grey stone. Farmers bring barley and wool to the market every second week; in winter the pass is closed and the "
    "mail comes by boat. A survey of the valley counted forty households, three wells and a school with one teacher."
)
# (suite, language of its text, prompt, answer, what stands around it in a document)
TEXTS: tuple[tuple[str, str, str, str], ...] = (
    (
        "gsm8k",
        (
            "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many "
            "clips did Natalia sell altogether in April and May?"
        ),
        "Natalia sold 48/2 = 24 clips in May. Natalia sold 48+24 = 72 clips altogether in April and May. #### 72",
        PROSE,
    ),
    (
        "mmlu",
        (
            "Which of the following best describes the balance the Supreme Court has struck between the establishment "
            "clause and the free-exercise clause?"
        ),
        "Free exercise of religion is upheld, with some limitations to protect the safety of others.",
        PROSE,
    ),
    (
        "humaneval",
        (
            "def has_close_elements(numbers: List[float], threshold: float) -> bool:\n"
            '    """Check if in given list of numbers, are any two numbers closer to each other than\n'
            '    given threshold.\n    """\n'
        ),
        (
            "    for idx, elem in enumerate(numbers):\n        for idx2, elem2 in enumerate(numbers):\n"
            "            if idx != idx2:\n                distance = abs(elem - elem2)\n"
            "                if distance < threshold:\n                    return True\n\n    return False\n"
        ),
        "# Copyright the authors\nfrom typing import List\n\n\ndef helper(x):\n    return x * x\n\n",
    ),
    (
        "ceval/法律",
        "下列关于行政许可的设定，哪一项是正确的？地方性法规可以设定企业的设立登记及其前置性行政许可。",
        "省级人民政府规章可以设定临时性的行政许可，临时性的行政许可实施满一年需要继续实施的，应当提请制定地方性法规。",
        "本院经审理认为，当事人提交的证据足以证明上述事实。关于争议的焦点，双方各执一词。根据有关规定，应当依法予以支持。",
    ),
    (
        "arabic_exams",
        "ما هي المدينة التي كانت عاصمة الدولة العباسية في معظم فترات حكمها ولماذا اختارها الخليفة المنصور؟",
        "بغداد، وقد اختارها المنصور لموقعها على نهر دجلة وقربها من طرق التجارة القديمة.",
        "كتب المؤرخون كثيرا عن هذه الفترة من التاريخ، وتناولوا أحوال الناس في المدن والقرى (انظر الفصل 3).",
    ),
    (
        "squad_v2",
        "In what country is Normandy located, and when did the Normans give their name to the region?",
        "France; in the 10th and 11th centuries they gave their name to Normandy.",
        PROSE,
    ),
)
SOURCES = ("web-crawl", "stack-python", "wiki.zh", "forums", "papers")
HOSTILE = (
    "</script><script>document.title='PWNED'</script>",
    "<img src=x onerror=\"document.title='PWNED'\">",
    '" onmouseover="document.title=\'PWNED\'" x="',
    "<!-- <script> ]]> &lt;b&gt; </style> {{ 7*7 }} {% raw %}",
    "line\u2028separator\u2029 in script",
    "\x1b[2J\x1b]0;PWNED\x07 red \x1b[31m",
    "right to left \u202eoverride\u202c and \u2066isolate\u2069",
    "nul \0 and \x9b31m, \ufeff and \ufffd",
    "long" * 40_000,
    "javascript:alert(1)",
)
METRICS = ("longest_ratio", "best_doc_ratio", "token_ratio", "ngram_ratio")


def rate(found: int, of: int) -> r.Rate:
    """With the interval of Wilson, spelled out."""
    if not of:
        return r.Rate(found=found, of=of, share=None, low=0.0, high=1.0)
    z, p = 1.959963984540054, found / of
    middle = (p + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * (p * (1 - p) / of + z * z / (4 * of * of)) ** 0.5
    return r.Rate(found=found, of=of, share=p, low=max(0.0, middle - half), high=min(1.0, middle + half))


def evidence(rng: random.Random, at: int, cls: r.Class, texts: Sequence[str], role: r.Role = "train") -> r.Evidence:
    """A document with a prompt and, where the class says so, its answer."""
    _, prompt, answer, around = texts
    pieces, kinds = [], {"adjacent": ("prompt", "answer"), "solution": (None, "solution"), "passage": ("passage", None)}
    first, second = kinds.get(cls, ("prompt", None))
    start = rng.choice([0, 12_480])
    parts = [(None, around + "\n\n"), (first, prompt), (None, "\n\n"), (second, answer), (None, "\n\n" + around)]
    if second is None:
        parts[3] = (None, around)
    for kind, text in parts:
        end = start + len(text.encode("utf-8", "surrogatepass"))
        pieces.append(r.Piece(start=start, end=end, kind=kind, text=text))
        start = end
    marked = [piece for piece in pieces if piece.kind]
    matches = []
    for piece in marked:
        assert piece.kind
        units = max(8, len(piece.text.split()))
        found = units if cls in {"adjacent", "solution"} else max(8, int(units * rng.uniform(0.6, 1)))
        matches.append(
            r.Match(
                kind=piece.kind,
                ordinal=0,
                units=units,
                matched=min(found, units),
                metrics={"longest_ratio": min(found, units) / units, "token_ratio": min(found, units) / units},
                spans=(r.Span(start=piece.start, end=piece.end, part_start=0, units=min(found, units)),),
                spans_total=1,
                near={"near": "edit", "variant": "numbers"}.get(cls),
            )
        )
    source = SOURCES[min(at % 7, rng.randrange(len(SOURCES)))]
    dropped = rng.random() < 0.1
    return r.Evidence(
        document=f"{rng.getrandbits(128):032x}",
        corpus="web-mix",
        source=source,
        role=role,
        cls=cls,
        url=f"https://example.org/{source}/{at}" if rng.random() < 0.7 else None,
        path=f"{source}/part-{at % 12:04d}.jsonl.zst",
        line=rng.randrange(90_000),
        offset=rng.randrange(400_000_000),
        bytes=start + rng.randrange(9000),
        exposure=0 if dropped else rng.choice([1, 1, 1, 2, 4]),
        survived=not dropped,
        fate="dropped" if dropped else "kept",
        stage="2:near_dedup" if dropped else None,
        rule="jaccard >= 0.8" if dropped else None,
        packed=None if dropped else rng.choice(["whole", "whole", "cut"]),
        shards=() if dropped else (r.ShardPlace(file="train/shard-00002.parquet", row=rng.randrange(4000)),),
        gap=rng.randrange(9) if cls == "adjacent" else None,
        matches=tuple(matches),
        excerpt=tuple(pieces),
    )


def flagged(n: int, seed: int = 5, hostile: Sequence[str] = (), documents: int = 2) -> tuple[r.Flagged, ...]:
    """Examples of all classes, the clearest first; each hostile text once as prompt, answer, id, suite and url."""
    rng = random.Random(seed)
    classes: list[r.Class] = ["adjacent", "solution", "prompt", "near", "variant", "short", "passage"]
    drawn = sorted((classes.index(c), i) for i, c in enumerate(rng.choices(classes, (5, 3, 8, 3, 4, 2, 6), k=n)))
    found = []
    for rank, (which, at) in enumerate(drawn):
        cls, texts = classes[which], TEXTS[at % len(TEXTS)]
        suite, prompt, answer, around = texts
        name = f"{suite.split('/', maxsplit=1)[0]}-{at}"
        url = None
        if rank < len(hostile):
            text = hostile[rank]
            suite, prompt, answer, around, name, url = (text[:60], text + prompt, text, text + around, text[:200], text)
        held = tuple(evidence(rng, at, cls, (suite, prompt, answer, around)) for _ in range(1 + at % documents))
        if url is not None:
            held = tuple(one.model_copy(update={"url": url, "path": url, "document": url}) for one in held)
        longest = max((m.metrics["longest_ratio"] for one in held for m in one.matches), default=0.0)
        values = {"longest_ratio": longest, "best_doc_ratio": min(1.0, longest * 1.05), "token_ratio": longest}
        found.append(
            r.Flagged(
                suite=suite,
                id=name,
                file=f"evals/{suite}.jsonl",
                row=at,
                cls=cls,
                lang={"ceval/法律": "zh", "arabic_exams": "ar"}.get(suite),
                also=("prompt",) if cls == "adjacent" and at % 4 == 0 else (),
                why="prompt 38 of 38 units, answer 6 units behind it"
                if cls == "adjacent"
                else "longest match 0.84 >= 0.5",
                parts=(
                    r.Part(kind="prompt", ordinal=0, correct=None, text=prompt[: r.TEXT], cut=len(prompt) > r.TEXT),
                    r.Part(kind="answer", ordinal=0, correct=True, text=answer[: r.TEXT], cut=len(answer) > r.TEXT),
                ),
                metrics=values | {"ngram_ratio": max(0.0, longest - 0.1), "longest": round(longest * 40)},
                metrics_without=values,
                documents=len(held),
                exposure=sum(one.exposure for one in held),
                sources=tuple(sorted({one.source for one in held})),
                survived=any(one.survived for one in held),
                twins=(f"{suite}/twin-{at}",) if at % 9 == 0 else (),
                evidence=held,
            )
        )
    return tuple(found)


def set_row(suite: str, classes: dict[r.Class, int], recall: float | None = 0.98) -> r.SetRow:
    examples, hits = sum(classes.values()), sum(classes.get(cls, 0) for cls in r.FLAGGED)
    tested = examples - sum(classes.get(cls, 0) for cls in ("short", "untested"))
    return r.SetRow(
        suite=suite,
        examples=examples,
        tested=tested,
        classes=classes,
        flagged=hits,
        rate=rate(hits, tested),
        least=hits / examples if examples else 0.0,
        most=(hits + examples - tested) / examples if examples else 0.0,
        zero=None if hits or not tested or not recall else min(1.0, 3 / (tested * recall)),
        without_exclusion=hits + examples // 90,
    )


def section(role: r.Role, found: tuple[r.Flagged, ...], corpora: tuple[str, ...]) -> r.Section:
    suites = list(dict.fromkeys([*(text[0] for text in TEXTS), "boolq", *(one.suite for one in found)]))
    rows = []
    for at, suite in enumerate(suites):
        classes: dict[r.Class, int] = {}
        for one in found:
            if one.suite == suite:
                classes[one.cls] = classes.get(one.cls, 0) + 1
        rows.append(set_row(suite, {**classes, "untested": (at * 37) % 90, "clean": 164 + 1155 * (at % 3)}))
    total: dict[r.Class, int] = {cls: sum(row.classes.get(cls, 0) for row in rows) for cls in r.CLASSES}
    sweeps = []
    for row in rows:
        for which, metric in enumerate(METRICS):
            for n, exclusion in ((8, True), (8, False), (13, True), (13, False)):
                scale = (1 if n == 8 else 0.7) * (1.15 if not exclusion else 1) * (1 + 0.2 * which)
                counts = tuple(int(scale * row.flagged * (1.35 - t) ** 2) for t in r.THRESHOLDS)
                sweeps.append(r.Sweep(suite=row.suite, metric=metric, n=n, exclusion=exclusion, flagged=counts))
    cells: dict[tuple[str, str], list[r.Flagged]] = {}
    for one in found:
        for source in one.sources:
            cells.setdefault((source, one.suite), []).append(one)
    matrix = tuple(
        r.Cell(
            source=source,
            suite=suite,
            examples=len(held),
            documents=sum(one.documents for one in held),
            exposure=sum(one.exposure for one in held),
            classes={cls: n for cls in r.CLASSES if (n := sum(one.cls == cls for one in held))},
        )
        for (source, suite), held in sorted(cells.items())
    )
    first = [one for one in found if one.evidence][:4]
    mirrors = tuple(
        r.Mirror(
            document=one.evidence[0].document,
            source=one.evidence[0].source,
            url=one.evidence[0].url,
            path=one.evidence[0].path,
            suite=one.suite,
            examples=5 + 17 * at,
        )
        for at, one in enumerate(first)
    )
    texts = [
        "answer the following question",
        "choose the best option from the list below",
        "下列选项中正确的是",
        PROSE[:60],
    ]
    common = tuple(
        r.Common(text=text, documents=4120 - 900 * at, occurrences=9100 - at, sources=5 - at, examples=311 - 40 * at)
        for at, text in enumerate(texts)
    )
    return r.Section(
        role=role,
        corpora=corpora,
        documents=1_284_551,
        sets=tuple(rows),
        total=set_row("*", total),
        sweep=tuple(sweeps),
        flagged=found,
        flagged_total=len(found) + (200 if found else 0),
        evidence_capped=f"The first {len(found):,} are shown, with 2 documents each." if found else None,
        matrix=matrix,
        mirrors=mirrors,
        mirrors_total=len(mirrors),
        common=common,
        common_total=1204,
        repeated=(*common, common[0].model_copy(update={"text": "seven apples and nine pears", "common": False})),
    )


def _corpus(role: r.Role, name: str) -> r.Corpus:
    failure = r.Failure(corpus=name, path="forums/part-0007.jsonl.zst", reason="truncated stream at byte 48,301,220")
    return r.Corpus(
        name=name,
        role=role,
        kind="build" if role == "train" else "files",
        path=f"builds/{name}",
        digest="9f2c41d7a0be" * 5 + "c0de",
        redacted=("forums",) if role == "train" else (),
        sources=tuple(
            r.SourceScope(
                source=s, documents=256_910 - i, units=98_120_400, bytes=612_004_112, copies=260_000, left_out=i * 911
            )
            for i, s in enumerate(SOURCES)
        ),
        files=tuple(
            r.ScopeFile(
                source=source,
                path=f"{source}/part-{at:04d}.jsonl.zst",
                bytes=48_301_220 + at,
                sha256=None if at == 7 else f"{at:02x}" * 32,
                records=9000 + at,
                documents=8900 + at,
                refused={"no text": 100} if at % 2 else {},
                damaged="truncated" if at == 7 else None,
            )
            for at, source in enumerate(SOURCES * 5)
        ),
        failures=(failure,) if role == "train" else (),
    )


def controls() -> r.Controls:
    forms: list[tuple[str, str, int, dict[str, int], tuple[str, ...]]] = [
        ("verbatim", "as it is, between other text", 200, {"adjacent": 196, "short": 4}, ()),
        ("wrapped", "lines broken at 40 characters", 200, {"adjacent": 200}, ()),
        ("inline", "inside a paragraph", 199, {"adjacent": 190, "prompt": 9}, ("mmlu/14",)),
        ("perturbed", "punctuation, case and Unicode changed", 198, {"adjacent": 198}, ("gsm8k/3", "squad_v2/9")),
        (
            "edits 3",
            "three words changed",
            171,
            {"adjacent": 120, "near": 51},
            ("gsm8k/3", "mmlu/7", "mmlu/8", "mmlu/9"),
        ),
        ("answer only", "the solution, without its prompt", 160, {"solution": 160}, ("mmlu/1", "mmlu/2")),
        ("numbers", "each number another one", 154, {"variant": 150, "prompt": 4}, ("mmlu/1",)),
    ]
    return r.Controls(
        examples=200,
        forms=tuple(
            r.Control(form=form, what=what, recall=rate(found, 200), classes=classes, missed=missed)
            for form, what, found, classes, missed in forms
        ),
        negative=r.Negative(
            what="documents made of shuffled words of the corpus",
            documents=2000,
            false=rate(1, 4412),
            examples=("boolq/88: short",),
        ),
        recall=0.9812,
    )


def scores() -> r.Scores:
    rows = (
        ("clean", 1180, 0.6123),
        ("adjacent", 12, 1.0),
        ("solution", 6, 0.8333),
        ("prompt", 31, 0.7419),
        ("untested", 40, 0.6),
    )
    one = r.ScoreSet(
        suite="gsm8k",
        all=r.ScoreRow(name="all", examples=1319, score=0.6391),
        rows=tuple(r.ScoreRow(name=name, examples=n, score=score) for name, n, score in rows),
        quote=r.ScoreRow(name="quote", examples=1269, score=0.6178),
        epg=2.68,
        epg_curve=tuple((t, 6.1 - 5.5 * t) for t in r.THRESHOLDS),
        z={"clean": -2.66, "not clean": 2.66, "dirty": 2.91, "not dirty": -2.91},
        evidence=True,
    )
    return r.Scores(path="scores/model-a.jsonl", sha256="ab" * 32, scored=1319, unknown=3, sets=(one,))


def trace(hostile: Sequence[str] = ()) -> r.Trace:
    names = [*hostile, "ret-00412", "ret-00977"]
    return r.Trace(
        path="traces/rag.jsonl",
        sha256="cd" * 32,
        lines=410,
        examples=400,
        documents=3980,
        unknown=10,
        missing=4,
        denied={"huggingface.co/datasets/openai/gsm8k": 7, "paperswithcode.com": 2},
        classes={"adjacent": 3, "prompt": 9, "clean": 388},
        flagged=tuple(
            r.Retrieved(suite="gsm8k", id=f"gsm8k-{at}", documents=10, cls="adjacent", by=(name,))
            for at, name in enumerate(names)
        ),
    )


def report(
    n: int = 60, *, hostile: Sequence[str] = (), documents: int = 2, everything: bool = True, untested: int = 140
) -> r.Report:
    """n flagged examples in the training data; everything: scores, a trace, a retrieval corpus, policies, failures."""
    found = flagged(n, hostile=hostile, documents=documents)
    sections = [section("train", found, ("web-mix@v0003-9f2c41d7a0be",))]
    scope = [_corpus("train", "web-mix@v0003-9f2c41d7a0be")]
    if everything:
        sections.append(section("retrieval", flagged(9, seed=8), ("wiki-index",)))
        scope.append(_corpus("retrieval", "wiki-index"))
        removed = [
            r.Removed(source=name, reason=f"holds {name} (adjacent)", documents=12) for name in hostile or SOURCES
        ]
        receipt = r.Receipt(by="stage 6:decontaminate", removed=tuple(removed))
        scope[0] = scope[0].model_copy(update={"receipts": (receipt, r.Receipt(by="--clean-out clean", removed=()))})
    total = sections[0].total
    names = list(dict.fromkeys(row.suite for row in sections[0].sets))
    return r.Report(
        tool="datapipe 0.1.0",
        verdict=r.Verdict(
            result="found" if total.flagged else "incomplete" if everything else "nothing found",
            complete=not everything,
            sentence=f"{total.flagged:,} of {total.tested:,} tested examples are in the training data of web-mix, "
            f"{total.classes.get('adjacent', 0):,} of them with their answer; "
            f"{total.classes.get('untested', 0):,} of {total.examples:,} could not be tested.",
            reasons=("1 of 50 files was cut: what lay behind byte 48,301,220 was not seen.",) if everything else (),
        ),
        scope=tuple(scope),
        failures=tuple(failure for corpus in scope for failure in corpus.failures) if everything else (),
        evals=r.Evals(
            files=tuple(
                r.EvalFile(
                    path=f"evals/{suite}.jsonl",
                    suite=suite,
                    bytes=901_220,
                    sha256="ef" * 32,
                    records=1319,
                    examples=1319,
                    mapping={"prompt": "question", "answer": "answer"},
                    failed=None,
                )
                for suite in names
            ),
            suites=tuple(
                r.EvalSuite(
                    suite=row.suite,
                    examples=row.examples,
                    tested=row.tested,
                    parts={"prompt": row.examples, "answer": row.tested},
                    untested={"fewer than 3 units": row.classes.get("untested", 0)},
                    twins=2,
                    ids=("row-1", "row-2"),
                )
                for row in sections[0].sets
            ),
            untested=tuple(
                r.Untested(
                    suite=names[at % len(names)], id=f"{at}", reason="fewer than 3 units" if at % 3 else "no text"
                )
                for at in range(untested)
            ),
            untested_total=untested,
            twins=(
                ("gsm8k/4", "gsm8k/812"),
                ("mmlu/77", "boolq/9", "squad_v2/4410"),
                *([tuple(hostile)] if hostile else []),
            ),
            twins_total=3,
        ),
        detector=r.Detector(
            profile="contam",
            n=8,
            n_unspaced=12,
            thresholds={"longest_ratio": 0.5, "best_doc_ratio": 0.5},
            adjacency=100,
            units="a run of letters, marks and digits; a character of an unspaced script",
            unicode="Unicode 14.0, NFKC_Casefold",
            grams=2_114_087,
            common="in 0.5 % of the documents of a source and 5 at least, or in 50 documents of each of 3 sources",
            excluded=1204,
            excluded_sha256="12" * 32,
            salt="audit-1",
            versions={"index": 1, "scan": 1, "numpy": "2.4.6"},
        ),
        controls=controls(),
        sections=tuple(sections),
        trace=trace(hostile) if everything else None,
        scores=scores() if everything else None,
        policies=(
            (
                r.Policy(expression="gsm8k.adjacent>0", figures={"gsm8k.adjacent": 3.0}, violated=True),
                r.Policy(expression="rate>0.2", figures={"rate": 0.0164}, violated=False),
            )
            if everything
            else ()
        ),
        blind=(
            "Paraphrases and translations that share no run of 8 units with an example.",
            "Text inside images, audio and archives.",
            "What a model was trained on elsewhere, before or after these data.",
        ),
        run=r.Run(
            started="2026-11-29T18:00:00Z",
            seconds=41.7,
            workers=2,
            peak_rss_bytes=612_000_000,
        ),
    )
