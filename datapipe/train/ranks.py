"""
Several ranks on this machine, started and ended here: what `--ranks N` does, and torchrun does across machines.

They find each other by a file, not by a port, so nothing listens but gloo on the loopback interface.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from datapipe.errors import MachineError
from datapipe.train.parallel import STORE

SETTLE = 3.0  # seconds for the other ranks to say why, too, when one has failed
GRACE = 10.0  # seconds for a rank to end when another one has
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}


def run(arguments: Sequence[str], ranks: int) -> int:
    """
    `datapipe` with these arguments in each of `ranks` processes; the status of the first one that failed, else 0.

    The first rank speaks for all.  What another one says on stderr is shown where it failed and the first did not.
    """
    with tempfile.TemporaryDirectory(prefix="datapipe-ranks-") as folder:
        started: list[subprocess.Popen[bytes]] = []
        told = [Path(folder) / f"stderr-{rank}" for rank in range(ranks)]
        try:
            for rank in range(ranks):
                names = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
                environment = os.environ | LOOPBACK | names | {STORE: str(Path(folder) / "store")}
                command = [sys.executable, "-m", "datapipe", *arguments]
                with told[rank].open("wb") as file:
                    out, err = (subprocess.DEVNULL, file) if rank else (None, None)
                    started.append(subprocess.Popen(command, env=environment, stdout=out, stderr=err))  # noqa: S603  ourselves
            status, rank = _wait(started)
            if rank:
                sys.stderr.write(f"rank {rank} ended with status {status}\n{told[rank].read_text(errors='replace')}")
            return status
        finally:
            _end(started)


def _wait(started: Sequence[subprocess.Popen[bytes]]) -> tuple[int, int]:
    """The status of the process that is to blame, and its rank; (0, 0) where none failed."""
    while not any(process.poll() for process in started):
        if all(process.poll() == 0 for process in started):
            return 0, 0
        time.sleep(0.05)
    until = time.monotonic() + SETTLE
    while time.monotonic() < until and any(process.poll() is None for process in started):
        time.sleep(0.05)
    failed = [(rank, process.returncode) for rank, process in enumerate(started) if process.returncode]
    rank, status = min(failed, key=lambda one: one[1] == MachineError.status)  # who only lost the others is not
    return status if status > 0 else 128 - status, rank


def _end(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends what still runs: a rank whose peer is gone would wait for it."""
    for process in started:
        if process.poll() is None:
            process.terminate()
    until = time.monotonic() + GRACE
    for process in started:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
