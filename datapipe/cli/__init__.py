"""
The command line.  One file a command, loaded on call: `datapipe --help` imports none of the heavy libraries.

Exit status: 0 done, 1 a bug of ours, 2-8 see errors.py, 130 and 143 stopped by SIGINT and SIGTERM.
"""

import contextlib
import io
import os
import signal
import sys
import traceback
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import FrameType
from typing import NoReturn

import click

from datapipe.cli.lazy import Lazy
from datapipe.cli.text import say

COMMANDS = ("build", "audit", "show", "verify", "export", "train", "estimate", "clean", "init")


class Commands(Lazy):
    names, package = COMMANDS, "datapipe.cli"


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from datapipe import __version__

        click.echo(f"datapipe {__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli() -> None:
    """
    One YAML file to a language-model training set that can be explained.

    Exit status: 0 done, 2 wrong flag or manifest, 3 input cannot be used, 4 bytes differ from what was recorded,
    5 made from other inputs or by another recipe, 6 a limit says no, 7 not everything could be seen,
    8 the machine says no, 130 and 143 stopped, 1 a bug of ours.
    """


class Stopped(BaseException):
    """SIGINT or SIGTERM came.  No Exception, so that nothing that handles errors takes it for one."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


STOPPED = "stopped; the same command goes on where this one was"
_words = [STOPPED]  # of the command that runs
_stopped: list[int] = []  # the signal that came
_told: list[int] = []  # the one that stderr was told of
GRACE = 5  # seconds to end in order: a work unit may take a minute, and who stops a job soon sends SIGKILL


def _stop(number: int, _: FrameType | None) -> None:
    """
    The first signal ends the work in order; the second, or the end of GRACE, ends the process: what is committed
    stays in any case, and the next build sweeps the rest away.
    """
    if _stopped:
        os._exit(128 + number)
    _stopped.append(number)
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(GRACE)
    raise Stopped(number)


def when_stopped(words: str) -> None:
    """What this command says where it is stopped, in place of STOPPED, whether it then ends in order or not."""
    _words[:] = [words]


def _give_up(_: int, __: FrameType | None) -> None:
    """A thread still runs.  No thread of ours waits here instead: a signal may come while one is being started."""
    if not _told:
        os.write(2, f"{_words[0]}\n".encode())
    os._exit(128 + _stopped[0])


class NoPandas(Loader):
    """
    Finds pandas, and cannot load it: pyarrow looks for it at its first array of Python's values, and takes 0.2 s and
    55 MB that no command has a use for.
    """

    @classmethod
    def find_spec(cls, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, cls()) if name == "pandas" else None

    def create_module(self, spec: ModuleSpec) -> NoReturn:
        raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name)


def lean() -> None:
    """
    What a process of a command does without, before it imports pyarrow.  Its system pool gives a large buffer back when
    it is freed, where mimalloc keeps it for the thread (two that read and scan: 636 MB and 676), and is as fast.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sys.meta_path.insert(0, NoPandas)


def main() -> NoReturn:
    """Run the command line and exit with its status."""
    lean()
    _stopped.clear()
    _told.clear()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # texts of every script, on terminals that cannot show them
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:  # a shell's background job ignores SIGINT, and should
            signal.signal(number, _stop)
    status = run(sys.argv[1:])
    if status:
        # at once.  An interpreter that ends takes the handler away, and then the alarm itself would end it; and it ends
        # threads of libraries that failed in the middle of their work, of which one in C++ aborts the process
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)
    sys.exit(status)


def run(args: list[str]) -> int:
    """The exit status of a command line; what went wrong is said on stderr."""
    when_stopped(STOPPED)
    try:
        with cli.make_context("datapipe", args) as ctx:
            cli.invoke(ctx)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        _say_usage(error)
        return error.exit_code
    except BrokenPipeError:
        # who reads has seen enough; and the flush at exit must not say it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, click.Abort, Stopped) as stop:
        return _say_stopped(stop.number if isinstance(stop, Stopped) else signal.SIGINT)
    except Exception as error:  # noqa: BLE001  the border of the program: every error becomes a status here
        return _say_stopped(_stopped[0]) if _stopped else _say(error)
    return 0


def _say_stopped(number: int) -> int:
    _told.append(number)
    click.echo(_words[0], err=True)
    return 128 + number


def _say_usage(error: click.ClickException) -> None:
    """What click says of wrong arguments, which may hold anything."""
    shown = io.StringIO()
    error.show(shown)
    say(shown.getvalue().rstrip("\n"), err=True)


def _say(error: Exception) -> int:
    from datapipe.cli.trouble import known

    if status := known(error):
        say(f"error: {status.message}", err=True)
        return status.number
    say("".join(traceback.format_exception(error)).rstrip("\n"), err=True)
    say("error: this is a bug of datapipe; the lines above say where", err=True)
    return 1
