"""
What a manifest may say, and the exact words for what it may not.
"""

import contextlib
import glob
import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe import manifest as m
from datapipe.errors import MachineError, ManifestError
from datapipe.keyed import canonical
from datapipe.manifest import describe, messages, shape, values
from datapipe.manifest.load import validate

CHECKOUT = Path(__file__).parents[1]
MANIFESTS = CHECKOUT / "manifests"
SHIPPED = ["cyclic16.yaml", "demo.yaml", "stdlib.yaml", "web.yaml"]

HEAD = "name: a\nsources: {w: {files: [x.jsonl]}}\n"  # whatever follows begins on line 3
LABELLED = "name: a\nsources: {w: {files: [x], snapshot: {name: may-24}}}\n"
TWO = "name: a\nsources: {w: {files: [x]}, v: {files: [y], extra: [score]}}\n"
BOTH_LANG = TWO.replace("[x]", "[x], fields: {lang: l}").replace("[y]", "[y], fields: {lang: l}")


def mistakes(text: str | bytes) -> list[str]:
    """The lines of the error, without the file's name."""
    with pytest.raises(ManifestError) as caught:
        m.parse(text, "f.yaml")
    assert caught.value.status == 2
    lines = str(caught.value).splitlines()
    assert all(line.startswith("f.yaml:") for line in lines)
    return [line.removeprefix("f.yaml:") for line in lines]


# ---------------------------------------------------------------------------------------------------------------------
# one mistake, one message

TOP = (
    "`name`, `seed`, `output`, `documents`, `limits`, `quarantine`, `sources`, `language`, `stages`, `mixture`, "
    "`tokenizer`, `sequences`, `shards`"
)
STAGES = "filter, url_filter, word_filter, holdout, exact_dedup, near_dedup, decontaminate"
NAME = "a name of a-z, 0-9, `.`, `_`, `-` that starts with a letter or digit"
DATE = "a date or time such as 2024-03-01 or 2024-03-01T12:00:00Z"
NEEDS_TOKENIZER = "counts tokens, so it needs a tokenizer; add one, or leave this key out"

KEYS = {
    "a misspelt key at the top level": (HEAD + "sed: 1", "3: sed: unknown key; did you mean `seed`?"),
    "a key that is like none": (HEAD + "qqq: 1", f"3: qqq: unknown key; known are {TOP}"),
    "a misspelt required key is one mistake, not two": (
        "name: a\nsorces: {w: {files: [x]}}",
        "2: sorces: unknown key; did you mean `sources`?",
    ),
    "a key that belongs to another level": (
        HEAD + "tokenizer: {file: t}\nsequences: {seed: 7}",
        "4: sequences.seed: unknown key here; it belongs at the top level",
    ),
    "a key that belongs into an entry": (
        HEAD + "packing: concat",
        "3: packing: unknown key here; it belongs under `sequences`",
    ),
    "a required key is missing": (
        "sources: {w: {files: [x]}}",
        "1: name: is required: names the build; its versions lie in `<output>/<name>/`",
    ),
    "the same key twice": (HEAD + "seed: 1\nseed: 2", "4: seed: stands there twice; first on line 3"),
    "a key that is a number": (HEAD + "1: 2", "3: found 1 as a key, expected text; put it in quotes"),
    "a misspelt field of ours": (
        "name: a\nsources: {w: {files: [x], fields: {txt: body}}}",
        "2: sources.w.fields.txt: unknown key; did you mean `text`?",
    ),
    "a stage without its name": (HEAD + "stages: [{}]", f"3: stages[0].stage: is required: one of {STAGES}"),
    "a misspelt stage": (
        HEAD + "stages:\n- {stage: filtr}",
        f"4: stages[0].stage: found 'filtr', expected one of {STAGES}; did you mean `filter`?",
    ),
    "a stage that is only a word": (
        HEAD + "stages: [filter]",
        "3: stages[0]: found 'filter', expected a mapping with the key stage",
    ),
    "a misspelt key of a stage": (
        HEAD + "stages:\n- stage: near_dedup\n  treshold: 0.5",
        "5: stages[0].treshold: unknown key; did you mean `threshold`?",
    ),
    "a misspelt end of a bound": (
        HEAD + "stages: [{stage: filter, keep: {word_count: {mn: 5}}}]",
        "3: stages[0].keep.word_count.mn: unknown key; did you mean `min`?",
    ),
    "a misspelt key of the tokenizer": (
        HEAD + "tokenizer: {fil: t.json}",
        "3: tokenizer.fil: unknown key; did you mean `file`?",
    ),
}

VALUES = {
    "a string in place of a number": (HEAD + "seed: many", "3: seed: found 'many', expected a whole number, 0 or more"),
    "a number in quotes": (
        HEAD + "tokenizer: {file: t}\nsequences: {length: '8'}",
        "4: sequences.length: found '8', expected a whole number of 2 or more; without quotes",
    ),
    "a fraction in place of a whole number": (
        HEAD + "seed: 1.0",
        "3: seed: found 1.0, expected a whole number, 0 or more",
    ),
    "true is no number": (HEAD + "seed: true", "3: seed: found true, expected a whole number, 0 or more"),
    "a negative number": (HEAD + "seed: -1", "3: seed: found -1, expected a whole number, 0 or more"),
    "a number in place of text": (
        "name: 17\nsources: {w: {files: [x]}}",
        f"1: name: found 17, expected {NAME}; put it in quotes",
    ),
    "a name with a blank": (
        "name: a b\nsources: {w: {files: [x]}}",
        f"1: name: found 'a b', expected {NAME}",
    ),
    "a source's name with a slash": (
        "name: a\nsources: {w/x: {files: [x]}}",
        f"2: sources.w/x: found 'w/x', expected {NAME.replace('a-z, 0-9', 'letters, digits')}",
    ),
    "no sources": ("name: a\nsources: {}", "2: sources: found an empty mapping, expected at least one"),
    "no files": (
        "name: a\nsources: {w: {files: []}}",
        "2: sources.w.files: found an empty list, expected at least one",
    ),
    "a path in place of a list": (
        "name: a\nsources: {w: {files: x}}",
        "2: sources.w.files: found 'x', expected a list, each a path",
    ),
    "an empty path": (
        "name: a\nsources: {w: {files: ['']}}",
        "2: sources.w.files[0]: found empty text, expected a path",
    ),
    "nothing where a mapping is due": (HEAD + "limits:", "3: limits: found nothing (null), expected a mapping"),
    "a variable that is not set": (
        HEAD + "output: ${NOT_SET_ANYWHERE}/b",
        "3: output: found '${NOT_SET_ANYWHERE}/b': ${NOT_SET_ANYWHERE} is not set, or empty, in the environment",
    ),
    "a variable without an end": (HEAD + "output: a${X", "3: output: found 'a${X': `${` has no closing `}`"),
    "a home that is none": (
        HEAD + "output: ~nobody-of-this-name/b",
        "3: output: found '~nobody-of-this-name/b': `~nobody-of-this-name` has no home folder",
    ),
    "one of a few": (
        HEAD + "documents: kep",
        "3: documents: found 'kep', expected one of all, kept, none; did you mean `kept`?",
    ),
    "a fraction above 1": (
        HEAD + "stages: [{stage: holdout, fraction: 10}]",
        "3: stages[0].fraction: found 10, expected a share above 0 and below 1",
    ),
    "infinity": (
        HEAD + "stages: [{stage: filter, keep: {word_count: {min: .inf}}}]",
        "3: stages[0].keep.word_count.min: found inf, expected a number",
    ),
    "a size with a strange unit": (
        HEAD + "limits: {expanded: 4 gb}",
        "3: limits.expanded: found '4 gb', expected a size such as 64MB, 1.5GB, 512MiB or a whole number of bytes",
    ),
    "a limit that is neither count nor share": (
        HEAD + "limits: {rejected: 1.5}",
        "3: limits.rejected: found 1.5, expected a count (a whole number, 0 or more) or a share from 0.0 to 1.0",
    ),
    "a day that is none": (
        "name: a\nsources: {w: {files: [x], fields: {date: d}, snapshot: {as_of: 2024-02-30}}}",
        f"2: sources.w.snapshot.as_of: found '2024-02-30', expected {DATE}",
    ),
    "a digest that YAML read as a number": (
        "name: a\nsources: {w: {files: [x], pin: 12}}",
        "2: sources.w.pin: found 12, expected a sha256 of 64 hex digits, a-f in lower case; put it in quotes",
    ),
    "a list with the same twice": (
        HEAD + "stages: [{stage: exact_dedup, prefer: [newest, newest]}]",
        "3: stages[0].prefer: 'newest' stands there twice",
    ),
    "a preference that can never decide": (
        HEAD + "stages: [{stage: exact_dedup, prefer: [shortest, longest]}]",
        "3: stages[0].prefer: `longest` can never decide after `shortest`",
    ),
    "a text field that is taken away": (
        "name: a\nsources: {w: {files: [x], fields: {text: null}}}",
        "2: sources.w.fields.text: found nothing (null), expected text",
    ),
    "a snapshot's name that is neither text nor a list": (
        "name: a\nsources: {w: {files: [x], snapshot: {name: 5}}}",
        "2: sources.w.snapshot.name: found 5, expected text or a list, each text; put it in quotes",
    ),
    "neither file nor train": (
        HEAD + "tokenizer: {eos: x}",
        "3: tokenizer: needs either file (a tokenizer.json) or train (vocab_size, sample)",
    ),
    "both file and train": (
        HEAD + "tokenizer: {file: t, train: {vocab_size: 999}}",
        "3: tokenizer: needs either file (a tokenizer.json) or train (vocab_size, sample)",
    ),
    "a vocabulary that does not hold the bytes": (
        HEAD + "tokenizer: {train: {vocab_size: 256}, eos: x}",
        "3: tokenizer.train: vocab_size is 256, expected 257 or more: 256 bytes and the control tokens",
    ),
    "too few permutations for the threshold": (
        HEAD + "stages: [{stage: near_dedup, threshold: 0.1, num_perm: 8}]",
        "3: stages[0].num_perm: found 8, expected 44 or more: fewer cannot find 99% of the pairs at threshold 0.1",
    ),
}

NOT_YET = "not in this version"
LATER = {
    "a preset that is none": (
        HEAD + "stages: [{stage: filter, preset: gopher, keep: {word_count: {min: 1}}}]",
        (
            "3: stages[0].preset: no such preset; there are c4, code, fineweb, fineweb@datatrove, gopher_quality, "
            "gopher_repetition, quality_units"
        ),
    ),
    "a bound that a preset does not have": (
        HEAD + "stages: [{stage: filter, preset: code, keep: {word_count: null}}]",
        "3: stages[0].keep: word_count: preset code has no such bound to take away",
    ),
    "a score that nobody gives": (
        HEAD + "stages: [{stage: filter, keep: {lang_score: {min: 0.65}}}]",
        (
            "3: stages[0].keep.lang_score: is what a language model gives; name one at the top level: "
            "language: {model: lid.176.ftz}"
        ),
    ),
    "a list of values for a number": (
        HEAD + "stages: [{stage: filter, keep: {word_count: {in: [en]}}}]",
        "3: stages[0].keep: word_count: `in` is for `lang` alone",
    ),
    "ends for lang": (
        HEAD + "stages: [{stage: filter, keep: {lang: {min: 1}}}]",
        "3: stages[0].keep: lang: `lang` is bounded by `in: [...]`",
    ),
    "both kinds of bound": (
        HEAD + "stages: [{stage: filter, keep: {lang: {min: 1, in: [en]}}}]",
        "3: stages[0].keep.lang.in: `in` goes without min and max",
    ),
    "a bound on lang where there is none": (
        HEAD + "stages: [{stage: filter, keep: {lang: {in: [en]}}}]",
        "3: stages[0].keep.lang: source w maps no `lang`, so all its documents would leave; add it under its fields",
    ),
    "access": (
        "name: a\nsources: {w: {files: [x], access: open}}",
        "2: sources.w.access: not in this version (whether the source is open or restricted)",
    ),
    "expiry": (
        "name: a\nsources: {w: {files: [x], expires: 2027-01-01}}",
        "2: sources.w.expires: not in this version (date from which the source may not be used)",
    ),
    "allow": (
        HEAD + "allow: [restricted]",
        "3: allow: not in this version (kinds of restricted sources that may be used)",
    ),
    "dedup against another build": (
        HEAD + "stages: [{stage: near_dedup, against: [old]}]",
        "3: stages[0].against: not in this version (builds whose documents count as already there); leave it empty",
    ),
}

AFTER = "dedup must know the validation documents, to take their copies out of train; put holdout before"
WOULD_LEAVE = "so all its documents would leave; add the field there, or judge with"
BETWEEN = {
    "holdout after exact dedup": (
        HEAD + "stages:\n- {stage: exact_dedup}\n- {stage: holdout, fraction: 0.1}",
        f"5: stages[1]: holdout comes after exact_dedup: {AFTER} exact_dedup",
    ),
    "holdout after decontaminate": (
        HEAD + "stages:\n- {stage: decontaminate, suites: [e.jsonl]}\n- {stage: holdout, fraction: 0.1}",
        (
            "5: stages[1]: holdout comes after decontaminate: validation documents are counted there and stay, "
            "so they must be known; put holdout before decontaminate"
        ),
    ),
    "holdout after near dedup": (
        HEAD + "stages:\n- {stage: near_dedup}\n- {stage: holdout, fraction: 0.1}",
        f"5: stages[1]: holdout comes after near_dedup: {AFTER} near_dedup",
    ),
    "a second holdout": (
        HEAD + "stages:\n- {stage: holdout, fraction: 0.1}\n- {stage: holdout, fraction: 0.1}",
        "5: stages[1]: holdout stands there twice; the first is stages[0]",
    ),
    "a second near dedup": (
        HEAD + "stages:\n- {stage: near_dedup}\n- {stage: near_dedup}",
        "5: stages[1]: near_dedup stands there twice; the first is stages[0]",
    ),
    "holdout by a field that no source has": (
        HEAD + "stages: [{stage: holdout, fraction: 0.1, by: author}]",
        "3: stages[0].by: no source has such a field; known are `id`; further fields are named in extra",
    ),
    "holdout by a field of ours that no source maps": (
        HEAD + "stages: [{stage: holdout, fraction: 0.1, by: group}]",
        "3: stages[0].by: no source has such a field; map it: fields: {group: <name in the file>}",
    ),
    "an unknown signal": (
        HEAD + "stages: [{stage: filter, keep: {word_cont: {min: 5}}}]",
        "3: stages[0].keep.word_cont: no such signal or extra field; did you mean `word_count`?",
    ),
    "no bound at all": (
        HEAD + "stages: [{stage: filter, keep: {}}]",
        "3: stages[0].keep: needs bounds in `keep`, or the name of a preset",
    ),
    "a bound without ends": (
        HEAD + "stages: [{stage: filter, keep: {word_count: {}}}]",
        "3: stages[0].keep.word_count: a bound needs min, max or both",
    ),
    "a bound that nothing meets": (
        HEAD + "stages: [{stage: filter, keep: {word_count: {min: 5, max: 1}}}]",
        "3: stages[0].keep.word_count.min: min 5 is above max 1: nothing would stay",
    ),
    "a bound on a field that another source lacks": (
        TWO + "stages: [{stage: filter, keep: {score: {min: 1}}}]",
        f"3: stages[0].keep.score: source w has no extra field score, {WOULD_LEAVE} only: {{source: [v]}}",
    ),
    "a bound on a field that nobody but judged sources has": (
        BOTH_LANG + "stages: [{stage: filter, keep: {score: {min: 1}}, only: {lang: [en]}}]",
        f"3: stages[0].keep.score: source w has no extra field score, {WOULD_LEAVE} only: {{source: [v]}}",
    ),
    "only a source that is none": (
        TWO + "stages: [{stage: filter, keep: {word_count: {min: 1}}, only: {source: [web]}}]",
        "3: stages[0].only.source[0]: no such source; known are `w`, `v`",
    ),
    "only nothing": (
        HEAD + "stages: [{stage: filter, keep: {word_count: {min: 1}}, only: {}}]",
        "3: stages[0].only: needs source, lang or snapshot; leave `only` out to judge all documents",
    ),
    "a language model for a source that is none": (
        TWO + "language: {model: lid, sources: [x]}",
        "3: language.sources[0]: no such source; known are `w`, `v`",
    ),
    "an extra field named as the model's score": (
        "name: a\nsources: {w: {files: [x], extra: [lang_score]}}\nlanguage: {model: lid}",
        "2: sources.w.extra[0]: `lang_score` is what the language model gives; carry the field under another name",
    ),
    "a bound on the score where no model gives it": (
        TWO + "language: {model: l, sources: [v]}\nstages: [{stage: filter, keep: {lang_score: {min: 0.5}}}]",
        f"4: stages[0].keep.lang_score: source w has no extra field lang_score, {WOULD_LEAVE} only: {{source: [v]}}",
    ),
    "only a language where the model is shown others": (
        TWO + "language: {model: l, sources: [v]}\n"
        "stages: [{stage: word_filter, words: [b], only: {lang: [en], source: [w]}}]",
        "4: stages[0].only.lang: no source that is judged maps `lang`, so nothing would be; add it under fields",
    ),
    "URL rules without a list": (
        "name: a\nsources: {w: {files: [x], extra: [url]}}\nstages: [{stage: url_filter}]",
        "3: stages[0]: needs a list: domains, hosts, urls, words, soft_words or substrings",
    ),
    "URL rules on a field that nobody has": (
        HEAD + "stages: [{stage: url_filter, domains: [d]}]",
        (
            "3: stages[0].field: no source that is judged has the field `url`; known are `id`; "
            "further fields are named in extra"
        ),
    ),
    "URL rules on a field that no judged source has": (
        TWO + "stages: [{stage: url_filter, domains: [d], field: score, only: {source: [w]}}]",
        (
            "3: stages[0].field: no source that is judged has the field `score`; known are `id`; "
            "further fields are named in extra"
        ),
    ),
    "a number of soft words without soft words": (
        (
            "name: a\nsources: {w: {files: [x], extra: [url]}}\n"
            "stages: [{stage: url_filter, domains: [d], soft_words_min: 3}]"
        ),
        "3: stages[0].soft_words_min: counts words of `soft_words`; name such a list",
    ),
    "word rules without a list": (
        HEAD + "stages: [{stage: word_filter, words: []}]",
        "3: stages[0].words: found an empty list, expected at least one",
    ),
    "only a language where none is mapped": (
        HEAD + "stages: [{stage: filter, keep: {word_count: {min: 1}}, only: {lang: [en]}}]",
        "3: stages[0].only.lang: no source that is judged maps `lang`, so nothing would be; add it under fields",
    ),
    "only a snapshot where none is named": (
        HEAD + "stages: [{stage: filter, keep: {word_count: {min: 1}}, only: {snapshot: [s]}}]",
        "3: stages[0].only.snapshot: no source that is judged has a snapshot, so nothing would be judged",
    ),
    "only a snapshot of another name": (
        LABELLED + "stages: [{stage: filter, keep: {word_count: {min: 1}}, only: {snapshot: [may-25]}}]",
        "3: stages[0].only.snapshot[0]: no such snapshot; did you mean `may-24`?",
    ),
    "a mixture without a source": (
        TWO + "tokenizer: {file: t}\nmixture: {w: {weight: 1}}",
        "4: mixture: names every source; missing: v (weight 0 leaves one out)",
    ),
    "a mixture of weights 0": (
        HEAD + "tokenizer: {file: t}\nmixture: {w: {weight: 0}}",
        "4: mixture: all weights are 0: nothing would be taken",
    ),
    "a negative weight": (
        HEAD + "tokenizer: {file: t}\nmixture: {w: {weight: -1}}",
        "4: mixture.w.weight: found -1, expected a number of 0 or more",
    ),
    "no epoch": (
        HEAD + "tokenizer: {file: t}\nmixture: {w: {weight: 1, epochs: 0}}",
        "4: mixture.w.epochs: found 0, expected a number above 0",
    ),
    "a mixture without a tokenizer": (HEAD + "mixture: {w: {weight: 1}}", f"3: mixture: {NEEDS_TOKENIZER}"),
    "sequences without a tokenizer": (HEAD + "sequences: {length: 8}", f"3: sequences: {NEEDS_TOKENIZER}"),
    "shards without a tokenizer": (HEAD + "shards: {tokens: 8}", f"3: shards: {NEEDS_TOKENIZER}"),
    "a shard smaller than a row": (
        HEAD + "tokenizer: {file: t}\nshards: {tokens: 100}",
        "4: shards.tokens: found 100, expected at least one row: sequences.length is 2048",
    ),
    "select on a field that is not mapped": (
        "name: a\nsources: {w: {files: [x], select: {lang: {in: [en]}}}}",
        "2: sources.w.select.lang: no such field; map it: fields: {lang: <name in the file>}",
    ),
    "select on a misspelt extra field": (
        "name: a\nsources: {w: {files: [x], extra: [author], select: {autor: {in: [b]}}}}",
        "2: sources.w.select.autor: no such field; did you mean `author`?; further fields are named in extra",
    ),
    "select without a condition": (
        "name: a\nsources: {w: {files: [x], select: {id: {}}}}",
        "2: sources.w.select.id: needs in, min or max",
    ),
    "select of nothing": (
        "name: a\nsources: {w: {files: [x], select: {id: {in: []}}}}",
        "2: sources.w.select.id.in: found an empty list, expected at least one value",
    ),
    "select of dates the wrong way round": (
        "name: a\nsources: {w: {files: [x], fields: {date: d}, select: {date: {min: 2021, max: 2020-05}}}}",
        "2: sources.w.select.date.min: min 2021 is above max 2020-05: nothing would be taken",
    ),
    "select of numbers the wrong way round": (
        "name: a\nsources: {w: {files: [x], extra: [n], select: {n: {min: 10, max: 9}}}}",
        "2: sources.w.select.n.min: min 10 is above max 9: nothing would be taken",
    ),
    "select by a date that is none": (
        "name: a\nsources: {w: {files: [x], fields: {date: d}, select: {date: {min: soon}}}}",
        "2: sources.w.select.date.min: found 'soon', expected a date or time such as 2024-03-01",
    ),
    "a snapshot's key that is no field": (
        "name: a\nsources: {w: {files: [x], fields: {date: d}, snapshot: {key: url}}}",
        "2: sources.w.snapshot.key: no such field; known are `id`, `date`; further fields are named in extra",
    ),
    "newest without a date": (
        "name: a\nsources: {w: {files: [x], snapshot: {key: id}}}",
        "2: sources.w.snapshot.key: newest by what? map `date` or `version` under fields",
    ),
    "as_of without a date": (
        "name: a\nsources: {w: {files: [x], snapshot: {as_of: 2024-01-01}}}",
        "2: sources.w.snapshot.as_of: compares `date`, which this source does not map; add it under fields",
    ),
    "keep without a key": (
        "name: a\nsources: {w: {files: [x], snapshot: {name: s, keep: oldest}}}",
        "2: sources.w.snapshot.keep: `keep` chooses among captures of one `key`; name the key",
    ),
    "several snapshots where none is mapped": (
        "name: a\nsources: {w: {files: [x], snapshot: {name: [s, t]}}}",
        "2: sources.w.snapshot.name: a list of names needs the field that holds them; map `snapshot` under fields",
    ),
    "an extra field named as one of ours": (
        "name: a\nsources: {w: {files: [x], extra: [date]}}",
        "2: sources.w.extra[0]: `date` is a field of ours; write `date: date` under fields",
    ),
    "an extra field named as a signal": (
        "name: a\nsources: {w: {files: [x], extra: [word_count]}}",
        "2: sources.w.extra[0]: `word_count` is the name of a signal; carry the field under another name",
    ),
    "fields of a text file": (
        "name: a\nsources: {w: {files: [x], format: text, fields: {lang: l}}}",
        "2: sources.w.fields: a text file is one document and has no fields; leave this key out",
    ),
}

TAG = "tag:yaml.org,2002:python/name:os.system"
YAML = {
    "an empty file": ("", "1: the file is empty; a manifest needs at least name and sources"),
    "only a comment": ("# x\n", "1: the file is empty; a manifest needs at least name and sources"),
    "a list": ("- a\n", "1: expected a mapping of keys such as name and sources"),
    "a word": ("a.yaml", "1: expected a mapping of keys such as name and sources"),
    "an open bracket": (HEAD + "stages: [1,\nb", "4: not YAML: expected ',' or ']', but got '<stream end>'"),
    "a tab": ("name: a\n\tb: 1", "2: not YAML: found character '\\t' that cannot start any token"),
    "two documents": (
        HEAD + "---\nb: 1",
        "3: not YAML: expected a single document in the stream but found another document",
    ),
    "a control character": (b"name: a\x00", "1: not YAML: character U+0000 may not stand in a YAML file"),
    "bytes that are no UTF-8": (b"name: a\nb: \xe9", "2: byte 0xe9 is not UTF-8; save the file as UTF-8"),
    "UTF-16": ("name: a".encode("utf-16"), "1: the file is UTF-16; save it as UTF-8"),
    "too deep, in brackets": ("[" * 600, "1: nested too deep to be a manifest"),
    "too deep, in braces": ("{a: " * 600, "1: nested too deep to be a manifest"),
    "a tag": (HEAD + "seed: !!python/name:os.system x", f"3: seed: the tag `{TAG}` has no meaning here; leave it out"),
    "a tag on a mapping": (HEAD + "limits: !mine {}", "3: limits: the tag `!mine` has no meaning here; leave it out"),
    "a number that is none": (HEAD + "seed: !!int x", "3: seed: found 'x', which is no number"),
    "a merge of no mapping": (
        "name: a\nsources: {w: {<<: 3, files: [x]}}",
        "2: sources.w: `<<` needs the alias of a mapping",
    ),
    "an alias in itself": (HEAD + "stages: &a [*a]", "3: stages[0]: the alias `*a` contains itself"),
}


@pytest.mark.parametrize(
    ("text", "message"),
    [pytest.param(*case, id=name) for table in (KEYS, VALUES, LATER, BETWEEN, YAML) for name, case in table.items()],
)
def test_one_mistake_has_one_message(text: str | bytes, message: str) -> None:
    assert mistakes(text) == [message]


def test_all_mistakes_come_at_once_in_order_of_lines() -> None:
    text = """\
name: Web
sed: 3
sources:
  web: {files: x, licence: 2024}
  web: {files: [x]}
  code: {files: [y], sample: 2, extra: [date]}
stages:
  - {stage: near_dedup, threshold: 2}
  - {stage: holdout, fraction: 10}
mixture: {web: {weight: 1}, cod: {weight: -1}}
limits: {rejected: -1}
"""
    assert [line.partition(": ")[0] + " " + line.split(": ")[1] for line in mistakes(text)] == [
        "1 name",
        "2 sed",
        "4 sources.web.files",
        "4 sources.web.licence",
        "5 sources.web",
        "6 sources.code.sample",
        "8 stages[0].threshold",
        "9 stages[1]",  # comes after near_dedup
        "9 stages[1].fraction",
        "10 mixture",  # misses code
        "10 mixture",  # needs a tokenizer
        "10 mixture.cod",
        "10 mixture.cod.weight",
        "11 limits.rejected",
    ]


def test_a_mistake_in_one_source_does_not_hide_what_is_wrong_between_others() -> None:
    text = (
        "name: a\nsources:\n  w: {files: [x], sampel: 1}\n  v: {files: [y], select: {lang: {in: [en]}}}\n"
        "stages: [{stage: filter, keep: {word_count: {min: 1}}, only: {source: [u]}}]"
    )
    assert mistakes(text) == [
        "3: sources.w.sampel: unknown key; did you mean `sample`?",
        "4: sources.v.select.lang: no such field; map it: fields: {lang: <name in the file>}",
        "5: stages[0].only.source[0]: no such source; known are `w`, `v`",
    ]


def test_the_nearest_key_is_found_for_every_key_with_a_letter_lost() -> None:
    for _, entry in shape.every_entry(m.Manifest):
        known = list(shape.fields(entry))
        for key in known:
            for lost in range(len(key)) if len(key) > 4 else ():
                assert messages.nearest(key[:lost] + key[lost + 1 :], known) == key


def test_mistakes_of_users_met_by_peers(shared: Path) -> None:
    """Case B47 in our keys: each is refused with status 2, where it stands, with the nearest key."""
    good = "name: b47\nseed: 7\nsources:\n  web: {files: [data/*.jsonl]}\nstages:\n"
    good += "  - {stage: filter, keep: {word_count: {min: 50}}}\n  - {stage: holdout, fraction: 0.1}\n"
    good += "tokenizer: {train: {vocab_size: 300}}\nsequences: {length: 128}\noutput: out\n"
    bad = {
        "typo_top": (good.replace("sequences:", "sequence:"), "9: sequence: unknown key; did you mean `sequences`?"),
        "typo_nested": (
            good.replace("{min: 50}", "{mim: 50}"),
            "6: stages[0].keep.word_count.mim: unknown key; did you mean `min`?",
        ),
        "wrong_nesting": (
            good.replace("seed: 7\n", "").replace("128", "128, seed: 7"),
            "8: sequences.seed: unknown key here; it belongs at the top level",
        ),
        "unknown_filter": (
            good.replace("word_count", "wort_count"),
            "6: stages[0].keep.wort_count: no such signal or extra field; did you mean `word_count`?",
        ),
        "wrong_type": (
            good.replace("128", "lots"),
            "9: sequences.length: found 'lots', expected a whole number of 2 or more",
        ),
        "negative": (good.replace("128", "-8"), "9: sequences.length: found -8, expected a whole number of 2 or more"),
        "fraction": (
            good.replace("0.1", "10"),
            "7: stages[1].fraction: found 10, expected a share above 0 and below 1",
        ),
        "no_sources": (
            "name: b47\noutput: out\n",
            "1: sources: is required: where the documents come from: name -> source",
        ),
        "empty": ("", "1: the file is empty; a manifest needs at least name and sources"),
    }
    expected = json.loads((shared / "cases" / "B47" / "EXPECT.json").read_text())["expect"]
    assert set(bad) == set(expected["bad"])
    assert expected["exit_code_bad"] == ManifestError.status
    for text, message in bad.values():
        assert mistakes(text) == [message]
    assert m.parse(good).resolve(m.parse(good).sources["web"].files[0]) == Path.cwd() / "data" / "*.jsonl"


# ---------------------------------------------------------------------------------------------------------------------
# what may be said


def test_a_file_that_is_not_there_or_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ManifestError, match=r"none\.yaml: there is no such file$"):
        m.load(tmp_path / "none.yaml")
    with pytest.raises(ManifestError, match=r"is a folder; name the YAML file in it$"):
        m.load(tmp_path)
    with pytest.raises(ManifestError, match=r"cannot be read: File name too long$"):
        m.load(tmp_path / ("x" * 300))

    def refuse(path: Path) -> bytes:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(MachineError, match=r"f\.yaml: may not be read"):
        m.load("f.yaml")


def test_defaults() -> None:
    manifest = m.parse(HEAD, "/some/where/f.yaml")
    source = manifest.sources["w"]
    assert (manifest.name, manifest.seed, manifest.documents) == ("a", 0, "all")
    assert manifest.limits == m.Limits(
        rejected=None, quarantined=None, removed_per_source=0.9, holdout=2.0, expanded=20 * 10**9
    )
    assert (source.files, source.exclude, source.format, source.tolerant) == (("x.jsonl",), (), "auto", False)
    assert source.fields == {"text": "text", "id": "id"}
    assert (source.extra, source.snapshot, source.select, source.sample, source.edits) == ((), None, {}, None, ())
    assert (source.priority, source.pin, source.licence) == (0, None, None)
    assert (manifest.stages, manifest.mixture, manifest.tokenizer) == ((), None, None)
    assert (manifest.sequences.length, manifest.sequences.packing) == (2048, "best_fit")
    assert (manifest.shards.tokens, manifest.shards.storage) == (16_000_000, "list")
    assert manifest.folder == Path("/some/where")
    assert manifest.output == Path("/some/where/builds")


def test_everything_that_can_be_said() -> None:
    manifest = m.parse("""\
name: web-mix
seed: 17
documents: kept
limits: {rejected: 3, quarantined: 0.5, expanded: 1.5GB}
quarantine: {raw: true}
sources:
  web: &web
    files: [data/web/*.jsonl.zst]
    exclude: ["**/draft/**"]
    tolerant: true
    fields: {text: content, id: null, group: page_family, date: crawled, version: v, snapshot: dump, lang: meta.lang}
    extra: [author, edu_score]
    snapshot: {name: [may, june], as_of: 2024-03-01, key: author, keep: oldest}
    select: {lang: {in: [en, no]}, date: {min: 2020}, edu_score: {max: 4.5}, author: {in: [true, 7]}}
    sample: 1
    edits: [nfc, strip_control]
    priority: 10
    pin: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    licence: CC-BY-4.0
  copy: {<<: *web, priority: -1}
stages:
  - {stage: filter, keep: {word_count: {min: 50}, edu_score: {min: 3, max: 3}}, only: {source: [web], lang: [en]}}
  - {stage: holdout, fraction: 0.01, by: author, salt: mine}
  - {stage: exact_dedup, prefer: [oldest]}
  - {stage: near_dedup, threshold: 1, against: []}
mixture: {web: {weight: 7}, copy: {weight: 0, epochs: 1.29}}
tokenizer: {train: {vocab_size: 4096, sample: 64MiB}, eos: "</s>"}
shards: {tokens: 16_000}
""")
    web, copy = manifest.sources["web"], manifest.sources["copy"]
    assert web.fields == {"text": "content", "group": "page_family", "date": "crawled", "version": "v",
                          "snapshot": "dump", "lang": "meta.lang"}  # fmt: skip
    assert web.names == ("group", "date", "version", "snapshot", "lang", "author", "edu_score")
    assert web.snapshot is not None
    assert (web.snapshot.names, web.snapshot.as_of) == (("may", "june"), "2024-03-01")
    assert web.snapshot.as_of_instant == 1_709_251_200_000_000
    assert web.select["lang"].in_ == ("en", "no"), "YAML 1.2: no is text"
    assert web.select["date"].min == "2020", "a year is a date, not a number"
    assert web.select["edu_score"].max == 4.5
    assert web.select["author"].in_ == ("true", 7), "true compares as its JSON text"
    assert (web.sample, copy.priority, copy.licence) == (1.0, -1, "CC-BY-4.0")
    assert (manifest.limits.rejected, manifest.limits.quarantined) == (3, 0.5)
    assert manifest.limits.expanded == 1_500_000_000
    kinds = [type(stage) for stage in manifest.stages]
    assert kinds == [m.Filter, m.Holdout, m.ExactDedup, m.NearDedup]
    assert isinstance(manifest.tokenizer, m.TokenizerTrain)
    assert manifest.tokenizer.train.sample == 64 * 2**20
    assert manifest.mixture is not None
    assert (manifest.mixture["copy"].weight, manifest.mixture["copy"].epochs) == (0.0, 1.29)


def test_a_bound_on_a_field_is_fine_where_the_sources_without_it_are_not_judged() -> None:
    text = "name: a\nsources: {w: {files: [x]}, v: {files: [y], fields: {lang: l}, extra: [score]}}\n"
    for only in ("{source: [v]}", "{lang: [en]}"):
        assert m.parse(text + f"stages: [{{stage: filter, keep: {{score: {{min: 1}}}}, only: {only}}}]").stages


def test_nothing_can_be_changed() -> None:
    manifest = m.parse(HEAD)
    with pytest.raises(ValueError, match="frozen"):
        manifest.seed = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_as_written_is_json_and_loads_again(tmp_path: Path) -> None:
    for name in SHIPPED:
        manifest = m.load(MANIFESTS / name)
        written = tmp_path / name
        written.write_bytes(canonical(manifest.as_written()))
        again = m.load(written)
        assert again.as_written() == manifest.as_written()
        assert again.as_written()["output"] == "../builds", "paths stay as written"


def test_the_recipe_knows_no_paths_and_no_names() -> None:
    text = "name: a\nseed: 1\noutput: b\nsources: {w: {files: [x], exclude: [y], priority: 2}}\n"
    text += "tokenizer: {file: t, eos: e}"
    recipe = m.parse(text).recipe()
    for old, new in [
        ("name: a", "name: z"),
        ("output: b", "output: z"),
        ("[x]", "[z]"),
        ("[y]", "[]"),
        ("file: t", "file: z"),
    ]:
        assert m.parse(text.replace(old, new)).recipe() == recipe, f"{new} decides nothing"
    for old, new in [("seed: 1", "seed: 2"), ("priority: 2", "priority: 3"), ("eos: e", "eos: f"), ("w:", "v:")]:
        assert m.parse(text.replace(old, new)).recipe() != recipe, f"{new} decides something"
    explicit = text + "\nsequences: {length: 2048}\nstages: []\nlimits: {expanded: 20000MB}"
    assert m.parse(explicit).recipe() == recipe, "a default that is written is the default"


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", "/d/[x]")
    monkeypatch.setenv("HOME", "/home/me")
    folder = tmp_path / "m[1]"
    folder.mkdir()
    (folder / "f.yaml").write_text(HEAD)
    manifest = m.load(folder / "f.yaml")
    assert manifest.path == folder / "f.yaml"
    assert manifest.resolve("a/b") == folder / "a" / "b"
    assert manifest.resolve("../b") == tmp_path / "b"
    assert manifest.resolve("/b") == Path("/b")
    assert manifest.resolve("~/b") == Path("/home/me/b")
    assert manifest.resolve("${DATA}/b") == Path("/d/[x]/b")
    assert manifest.resolve("${stdlib}/os.py") == Path(sysconfig.get_path("stdlib")) / "os.py"
    assert manifest.resolve("a$b") == folder / "a$b"
    # in a pattern only what the user wrote is a wildcard
    assert manifest.pattern("*/[ab]") == f"{tmp_path}/m[[]1]/*/[ab]"
    assert manifest.pattern("${DATA}/**/*.gz") == "/d/[[]x]/**/*.gz"


def test_a_manifest_behind_a_link_is_relative_to_the_folder_of_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f.yaml").write_text(HEAD)
    (tmp_path / "link.yaml").symlink_to(tmp_path / "real" / "f.yaml")
    assert m.load(tmp_path / "link.yaml").folder == tmp_path


SIZES = {"1B": 1, "64MB": 64_000_000, "1.5GB": 1_500_000_000, "4 KiB": 4096, "2TiB": 2 << 40, "0.5KB": 500, "7KB": 7000}


@pytest.mark.parametrize(("text", "expected"), SIZES.items())
def test_sizes(text: str, expected: int) -> None:
    assert values.size(text) == expected


@pytest.mark.parametrize(
    "text", ["", "5", "MB", "-1MB", "0MB", "0.3B", "1e3MB", "1mb", "1 MB x", True, 0, -5, 1.5, None]
)
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        values.size(text)


DAY = 86_400_000_000
INSTANTS = {
    "1970-01-01": 0,
    "1970": 0,
    "1970-02": 31 * DAY,
    "19700102": DAY,
    "19700102000001": DAY + 1_000_000,
    "1970-01-02T00:00:00Z": DAY,
    "1970-01-02t00:00:00z": DAY,
    "1970-01-02 00:00:00.5": DAY + 500_000,
    "1970-01-02T00:00:00.123456789Z": DAY + 123_456,
    "1970-01-02T02:00:00+02:00": DAY,
    "1970-01-02T02:00:00+0200": DAY,
    "1969-12-31T23:59:59.999999Z": -1,
    "0001-01-01T00:00:00+14:00": -62_135_596_800_000_000 - 14 * 3_600_000_000,
    "": None,
    "soon": None,
    "2024-02-30": None,
    "2024-13": None,
    "0000": None,
    "20240230000000": None,
    "２０２４": None,
}


@pytest.mark.parametrize(("text", "expected"), INSTANTS.items())
def test_instants(text: str, expected: int | None) -> None:
    assert values.instant(text) == expected


def test_names_of_signals_and_edits_are_those_that_exist() -> None:
    from datapipe import edits, signals

    assert set(m.SIGNALS) == set(signals.SIGNALS)
    assert set(shape.choices(shape.child(shape.fields(m.Source)["edits"][1], 0))) == set(edits.EDITS)


# ---------------------------------------------------------------------------------------------------------------------
# whatever comes


ODD = [None, True, -1, "", ["x"], {"x": 1}]


def places(node: Any) -> Iterator[tuple[Any, str | int]]:
    """Every (mapping or list, key) of a tree."""
    for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield node, key
        yield from places(node[key])


def test_a_manifest_with_anything_anywhere_loads_or_is_refused() -> None:
    """Each value replaced by odd ones: a manifest, or sentences that say where; never another exception."""
    tree = m.load(MANIFESTS / "demo.yaml").as_written()
    for node, key in list(places(tree)):
        value = node[key]
        for node[key] in ODD:
            manifest, problems = validate(tree, MANIFESTS / "x.yaml")
            assert manifest is not None or problems
            assert all(isinstance(place, tuple) and problem for place, problem in problems)
        node[key] = value
    assert validate(tree, MANIFESTS / "x.yaml")[1] == [], "and all is as it was"


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=20), st.integers(0, 400))
def test_a_file_of_any_bytes_loads_or_is_refused(piece: bytes, at: int) -> None:
    whole = (MANIFESTS / "cyclic16.yaml").read_bytes()[-400:]
    with contextlib.suppress(ManifestError):
        assert m.parse(whole[:at] + piece + whole[at:]).name


def test_aliases_of_aliases_do_not_explode() -> None:
    bomb = "x0: &a0 [1]\n" + "".join(f"x{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    assert len(mistakes(HEAD + bomb)) == 30


# ---------------------------------------------------------------------------------------------------------------------
# what is shipped


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_manifest_loads_and_its_files_are_there(name: str) -> None:
    manifest = m.load(MANIFESTS / name)
    assert manifest.name == name.removesuffix(".yaml")
    assert manifest.output == CHECKOUT / "builds"
    for source in manifest.sources.values():
        for pattern in source.files:
            assert any(glob.iglob(manifest.pattern(pattern), recursive=True)), pattern
    if isinstance(manifest.tokenizer, m.TokenizerFile):
        assert manifest.resolve(manifest.tokenizer.file).is_file()


def test_no_other_manifest_is_shipped() -> None:
    others = {path.name for path in MANIFESTS.iterdir() if not path.name.startswith("train-")}
    assert sorted(others) == ["README.md", "TRAINING.md", *SHIPPED]


def test_the_readme_is_what_the_types_say() -> None:
    written = (MANIFESTS / describe.FILE).read_text("utf-8")
    assert written == describe.readme(MANIFESTS), "run: python -m datapipe.manifest.describe manifests"


def test_the_readme_explains_every_key() -> None:
    text = describe.readme(MANIFESTS)
    for path, entry in shape.every_entry(m.Manifest):
        for key, (field, _) in shape.fields(entry).items():
            assert field.description, f"{path}.{key} has no description"
            assert f"| `{key}` |" in text
        for key in entry.LATER:
            assert f"| `{key}` | | | not in this version: " in text


def test_importing_the_manifest_loads_nothing_heavy() -> None:
    heavy = ["numba", "duckdb", "pyarrow", "tokenizers", "numpy"]
    code = f"import sys, datapipe.manifest; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert run.stdout.strip() == "[]"
