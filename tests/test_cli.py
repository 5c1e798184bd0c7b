"""The command line: exit statuses, several values, what is said and where, what it costs to ask for help."""

import errno
import json
import re
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import duckdb
import pytest
import synthetic
from click.testing import CliRunner

from datapipe import cli
from datapipe.build_manifest import Built, DryRun, SourceInput
from datapipe.cli import text
from datapipe.cli.command import Command, Several, Size, spread
from datapipe.cli.progress import Progress, state_line
from datapipe.cli.summary import plan, summary
from datapipe.cli.trouble import known
from datapipe.errors import (
    DataError,
    DriftError,
    IncompleteError,
    IntegrityError,
    MachineError,
    ManifestError,
    PolicyError,
)


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("builds")
    synthetic.build(output)
    return output


def run(capsys, *args: object) -> tuple[int, str, str]:
    status = cli.run([str(arg) for arg in args])
    said = capsys.readouterr()
    return status, said.out, said.err


SPREAD = {
    "several after the option": ("--eval a b c", "--eval a --eval b --eval c"),
    "up to the next option": ("x --eval a b --json", "x --eval a --eval b --json"),
    "twice": ("--eval a --json --eval b c", "--eval a --json --eval b --eval c"),
    "with an equals sign": ("--eval=a b", "--eval=a --eval b"),
    "another option's values": ("--out a b", "--out a b"),
    "after --": ("--eval a -- b c", "--eval a -- b c"),
    "a lone - is a value": ("--eval - a", "--eval - --eval a"),
    "nothing": ("", ""),
}


@pytest.mark.parametrize("given, expected", SPREAD.values(), ids=SPREAD)
def test_options_that_take_several(given, expected):
    assert spread(given.split(), {"--eval"}) == expected.split()


@pytest.fixture
def several() -> click.Command:
    @click.command(cls=Command)
    @click.argument("build", required=False)
    @click.option("--eval", "paths", cls=Several)
    @click.option("--json", "as_json", is_flag=True)
    def audit(build, paths, as_json):
        click.echo(f"{build} {list(paths)} {as_json}")

    return audit


@pytest.mark.parametrize(
    "args, expected",
    [
        (["b", "--eval", "x y", "z", "--json"], "b ['x y', 'z'] True"),
        (["--eval", "x", "--", "b"], "b ['x'] False"),
        ([], "None [] False"),
    ],
)
def test_a_command_with_several(several, args, expected):
    assert CliRunner().invoke(several, args).output == expected + "\n"


def test_an_option_without_its_value_is_a_wrong_flag(several):
    result = CliRunner().invoke(several, ["--eval"])
    assert result.exit_code == 2
    assert "--eval" in result.output


SIZES = [("64MB", 64_000_000), ("1GiB", 1 << 30), ("1000", 1000)]


@pytest.mark.parametrize("given, expected", SIZES)
def test_sizes(given, expected):
    assert Size().convert(given, None, None) == expected


@pytest.mark.parametrize("given", ["many", "-1GB", "1 parsec"])
def test_wrong_sizes(given):
    with pytest.raises(click.BadParameter, match="expected a size"):
        Size().convert(given, None, None)


def no_space() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", "/some/file")


STATUS = {
    "a wrong manifest": (ManifestError("m.yaml:2: seed: found x"), 2),
    "a wrong input": (DataError("d"), 3),
    "other bytes": (IntegrityError("i"), 4),
    "other inputs": (DriftError("d"), 5),
    "a limit": (PolicyError("p"), 6),
    "not everything seen": (IncompleteError("i"), 7),
    "the machine": (MachineError("m"), 8),
    "a full disk": (no_space(), 8),
    "no permission": (PermissionError(errno.EACCES, "denied", "/x"), 8),
    "no memory": (MemoryError(), 8),
    "no memory in DuckDB": (duckdb.OutOfMemoryException("failed to pin block"), 8),
    "a disk that DuckDB cannot write": (duckdb.IOException("IO Error: could not write"), 8),
    "a full disk while DuckDB commits": (
        duckdb.TransactionException('Failed to commit: Could not write file "x.wal": No space left on device'),
        8,
    ),
    "a file where a folder should be": (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/x/.units"), 8),
    "Ctrl-C": (KeyboardInterrupt(), 130),
    "SIGTERM": (cli.Stopped(signal.SIGTERM), 143),
    "a bug": (ZeroDivisionError("division by zero"), 1),
    "a file that a bug forgot": (FileNotFoundError(errno.ENOENT, "no such file", "/x"), 1),
    "a wrong query": (duckdb.CatalogException("no table"), 1),
    "a reader that has seen enough": (BrokenPipeError(), 0),
}


@pytest.mark.parametrize("error, status", STATUS.values(), ids=STATUS)
def test_exit_status(monkeypatch, capfd, error, status):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("datapipe.build_manifest.resolve", fail)
    monkeypatch.setattr(cli.os, "dup2", lambda *_: None)
    assert cli.run(["show"]) == status
    said = capfd.readouterr()
    assert said.out == ""
    assert ("Traceback" in said.err) == (status == 1)
    if 2 <= status <= 8:
        assert said.err.startswith("error: ")
    if status in (130, 143):
        assert "goes on where" in said.err


def test_what_a_full_disk_says():
    found = known(no_space())
    assert found is not None
    assert found.message.startswith("/some/file: the disk is full")


USAGE = {
    "an unknown command": ["biuld"],
    "an unknown option": ["show", "--dorpped"],
    "no manifest": ["build"],
    "a manifest that is not there": ["build", "nope.yaml"],
    "two questions": ["show", "--duplicates", "--document", "a"],
    "--out without --dropped": ["show", "--out", "x"],
    "--documents without --dry-run": ["build", __file__, "--documents", "5"],
    "too little memory": ["build", __file__, "--memory", "1MB"],
    "no workers": ["build", __file__, "--workers", "0"],
    "a build that is not there": ["show", "nope"],
}


@pytest.mark.parametrize("args", USAGE.values(), ids=USAGE)
def test_wrong_flags_are_status_2(tmp_path, monkeypatch, capsys, args):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *args)
    assert (status, out) == (2, "")
    assert err


def test_show(output, capsys):
    status, out, err = run(capsys, "show", "--output", output)
    assert (status, err) == (0, "")
    for line in ("4:near_dedup", "word_count < 5", "train lost 1 exact and 0 near copies", "1 shard of train: 4 rows"):
        assert line in out


def test_json_is_one_object_and_nothing_else(output, capsys):
    for args in (
        ["show"],
        ["show", "tiny", "--dropped", "word_count"],
        ["show", "tiny", "--duplicates"],
        ["show", "tiny", "--what-if", "word_count.min=9", "word_count.max=50"],
        ["show", "tiny", "--document", synthetic_id(0)[:10]],
        ["verify", "tiny"],
        ["clean"],
    ):
        status, out, err = run(capsys, *args, "--output", output, "--json")
        assert (status, err) == (0, ""), args
        assert isinstance(json.loads(out), dict)


def synthetic_id(place: int) -> str:
    docs = synthetic.story()
    synthetic._name(docs)
    return docs[place].id


def test_dropped_texts_into_a_file(output, tmp_path, capsys):
    out = tmp_path / "dropped.jsonl"
    status, said, _ = run(capsys, "show", "--dropped", "same text", "--out", out, "--output", output)
    assert (status, said) == (0, f"2 documents in {out}\n")
    assert {json.loads(line)["rule"] for line in out.read_text().splitlines()} == {"same text"}
    run(capsys, "show", "--dropped", "same text", "-n", 1, "--out", out, "--output", output)
    assert len(out.read_text().splitlines()) == 1


@pytest.mark.parametrize("out", ["no such folder/x.jsonl", "", "file/x.jsonl"], ids=["no folder", "a folder", "a file"])
def test_dropped_texts_into_a_place_that_is_none(output, tmp_path, capsys, out):
    (tmp_path / "file").touch()
    args = ["show", "--dropped", "same text", "--out", tmp_path / out, "--output", output]
    status, said, err = run(capsys, *args)
    assert (status, said) == (2, "")
    assert "Invalid value for --out: " in err


def test_a_mistyped_command_names_the_nearest(capsys):
    assert "No such command 'biuld'. Did you mean 'build'?" in run(capsys, "biuld")[2]
    assert "No such command 'x'.\n" in run(capsys, "x")[2]


def test_pairs_side_by_side(output, capsys):
    _, out, _ = run(capsys, "show", "--duplicates", "--output", output)
    assert "w58 [w59]" in out
    assert "w58 [other]" in out
    assert "similarity 0.9649" in out


def test_what_became_of_a_document(output, capsys):
    _, out, _ = run(capsys, "show", "--document", synthetic_id(7), "--output", output)
    assert out.count("in train/shard-00000.parquet, row") == 2
    _, out, _ = run(capsys, "show", "--document", synthetic_id(5), "--output", output)
    assert "dropped by 1:filter: word_count < 5" in out


def test_what_if(output, capsys):
    _, out, _ = run(capsys, "show", "--output", output, "--what-if", "word_count.min=45")
    assert "1:filter  wiki              1     4      +3" in out


def test_a_text_cannot_speak_to_the_terminal(tmp_path, capsys):
    docs = synthetic.story()
    docs[5].text = "\x1b[31mred\x07 \x9b2J\u202e\nsecond"
    synthetic.build(tmp_path, docs=docs)
    _, out, _ = run(capsys, "show", "--dropped", "word_count", "--output", tmp_path)
    assert not set(out) & set("\x1b\x07\x9b\u202e")
    assert "  | second" in out


def test_verify_is_status_4_where_something_differs(tmp_path, capsys):
    path = synthetic.build(tmp_path).path
    (path / "README.md").write_text("x")
    status, out, err = run(capsys, "verify", "--output", tmp_path)
    assert status == 4
    assert "README.md: 1 bytes" in out
    assert err.startswith("error: ")


@pytest.mark.parametrize("flags, status", [([], 0), (["--all"], 7)])
def test_verify_is_status_7_where_all_was_asked_and_not_all_could_be_seen(tmp_path, capsys, flags, status):
    synthetic.build(tmp_path, stored="none")
    assert run(capsys, "verify", "--output", tmp_path, *flags)[0] == status


def test_clean(tmp_path, capsys):
    unit = tmp_path / ".units/a"
    unit.mkdir(parents=True)
    (unit / "unit.json").write_text("{}")
    assert (
        "1 work unit and 0 leftovers would be removed"
        in run(capsys, "clean", "--keep", "0", "--dry-run", "--output", tmp_path)[1]
    )
    assert unit.exists()
    assert (
        "1 work unit and 0 leftovers removed, 2 B freed" in run(capsys, "clean", "--keep", 0, "--output", tmp_path)[1]
    )
    assert not unit.exists()


def test_the_summary_of_a_build_is_one_screen(output):
    found = synthetic.build(output.parent / "one-screen")
    said = summary(Built(found.path, found.manifest, warnings=("look [here]",), ran={"read": 2}, reused={"signals": 3}))
    assert len(said.splitlines()) <= 50
    assert "warning: look [here]" in said
    assert "2 work units ran (2 read), 3 reused" in said
    assert str(found.path) in said


def test_the_plan_of_a_build():
    dry = DryRun(
        "web", "1" * 64, (SourceInput("a", 2, 3_000_000, "9" * 64),), {"read": 2}, ("1:filter",), 10**9, 10**8, 1000
    )
    said = plan(dry)
    for part in ("2 files, 3 MB", "9" * 64, "2 read", "1:filter", "about 1 GB", "about 1,000"):
        assert part in said
    assert dry.holdout_fraction(10) == 0.01
    assert json.loads(json.dumps(dry.as_json()))["pins"] == {"a": "9" * 64}


SIZE_TEXTS = [
    (0, "0 B"),
    (999, "999 B"),
    (1000, "1 kB"),
    (1_234_567, "1.23 MB"),
    (999_999_999, "1 GB"),
    (5 * 10**15, "5 PB"),
]


@pytest.mark.parametrize("count, expected", SIZE_TEXTS)
def test_sizes_as_a_person_says_them(count, expected):
    assert text.size(count) == expected


WRAPPED = {
    "fits": ("a b", 5, ["a b"]),
    "breaks at a blank": ("aaa bbb", 5, ["aaa", "bbb"]),
    "a long word": ("x abcdefg", 3, ["x", "abc", "def", "g"]),
    "wide characters": ("一二三", 4, ["一二", "三"]),
    "a character wider than the column": ("一二", 1, ["一", "二"]),
    "nothing": ("", 5, [""]),
}


@pytest.mark.parametrize("given, columns, expected", WRAPPED.values(), ids=WRAPPED)
def test_wrap(given, columns, expected):
    assert text.wrap(given, columns) == expected


def test_tables_align_wide_characters():
    lines = text.table(("name", "n"), [("一", 1), ("ab", 20)]).split("\n")
    assert [text.width(line) for line in lines] == [10, 10, 10]


def test_progress_off_a_terminal_is_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr("datapipe.cli.progress.EVERY", 0.01)
    said = ""
    with Progress() as progress:
        progress("reading", 3, 1000)
        while said.count("\n") < 2:
            said += capsys.readouterr().err
    assert re.match(r"(reading: 3 of 1,000 \(\d+ s\)\n){2}", said)


@pytest.mark.parametrize(
    "state, expected", [(("a", 1, 2), "a: 1 of 2"), (("a", 1000, None), "a: 1,000"), (("a", 0, None), "a")]
)
def test_lines_of_progress(state, expected):
    assert state_line(*state) == expected


def test_progress_on_a_terminal_is_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress() as progress:
        progress("1:[red]", 1, None)
        progress("1:[red]", 2, 10)
    assert capsys.readouterr().out == ""


def start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


WAITING = """
    import signal, sys, time
    import datapipe.build_manifest
    from datapipe import cli
    def wait(*_, **__):
        print("waiting", flush=True)
        time.sleep(240)
    datapipe.build_manifest.resolve = wait
    signal.signal(signal.SIGINT, signal.default_int_handler)  # these tests may be a shell's background job
    sys.argv = ["datapipe", "show"]
    cli.main()
"""


BUSY = """
    import signal, sys, time
    import datapipe.build_manifest
    from datapipe import cli, units
    cli.GRACE = 1
    class Long:
        def run(self, store):
            time.sleep(0.3)  # by then the main thread waits for this one
            print("waiting", flush=True)
            time.sleep(240)
            return []
    datapipe.build_manifest.resolve = lambda *_, **__: units.run(None, [Long()], 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # these tests may be a shell's background job
    sys.argv = ["datapipe", "show"]
    cli.main()
"""


def test_a_command_that_is_stopped_says_its_own_words_however_it_ends():
    own = BUSY.replace("lambda *_, **__: units", "lambda *_, **__: cli.when_stopped('stopped; so it goes on') or units")
    with start(own) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        try:
            assert process.communicate(timeout=120)[1] == "stopped; so it goes on\n"
        finally:
            process.kill()
        assert process.returncode == 143


@pytest.mark.parametrize("script", [WAITING, BUSY], ids=["while it waits", "while a work unit takes long"])
@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_command(script, number, status):
    with start(script) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        try:
            assert process.wait(120) == status
        finally:
            process.kill()
        assert process.stderr.read() == "stopped; the same command goes on where this one was\n"


FAILED = """
    import atexit, os, sys
    import datapipe.build_manifest
    from datapipe import cli
    from datapipe.errors import MachineError
    def fail(*_, **__):
        print("said before", flush=False)
        raise MachineError("lost the others")
    datapipe.build_manifest.resolve = fail
    atexit.register(os.abort)
    sys.argv = ["datapipe", "show"]
    cli.main()
"""


def test_an_error_is_the_status_whatever_a_library_does_at_the_end():
    """Threads of torch's gloo that had lost their peers aborted one rank in many while its interpreter ended."""
    with start(FAILED) as process:
        assert process.communicate(timeout=120) == ("said before\n", "error: lost the others\n")
        assert process.returncode == 8


HEAVY = ("numba", "duckdb", "pyarrow", "tokenizers", "datasketch", "numpy", "pydantic", "rich")


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["build", "--help"], ["show", "--help"]])
def test_help_imports_nothing_heavy(args):
    code = f"""
        import sys
        from datapipe import cli
        status = cli.run({args})
        print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
        sys.exit(status)
    """
    with start(code) as process:
        out, err = process.communicate()
    assert process.returncode == 0
    assert err == "[]\n"
    assert out


def test_help_is_quick():
    """At most three times the CPU of Python and click alone (it is 1.8; numpy would make it 4), best of three."""

    def seconds(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [(seconds("-c", "import click"), seconds("-m", "datapipe", "--help")) for _ in range(3)]
    least, helped = map(min, zip(*pairs, strict=True))
    assert helped < 3 * least


LEAN = """
    import sys
    from datapipe.cli import lean
    lean()
    import pyarrow as pa
    pa.array([1])
    print("pandas" in sys.modules, pa.default_memory_pool().backend_name)
"""


def test_a_command_does_without_pandas_and_gives_memory_back():
    with start(LEAN) as process:
        assert process.communicate()[0] == "False system\n"
