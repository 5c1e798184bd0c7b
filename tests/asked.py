"""An example, files of records and `datapipe audit` on them, as its tests ask it."""

import json
from pathlib import Path

from datapipe import cli

QUESTION = (
    "Which of the seven lanterns on the quay of Marrowby did old Perrin light before the tide came in that night?"
)
ANSWER = "He lit the third lantern, for its glass was green and his daughter could see it from the ferry at dusk."
CLEAN = " ".join(f"w{word}" for word in range(60))


def write(path: str | Path, *records: object) -> Path:
    """A file of lines: texts as they are, all else as JSON."""
    made = Path(path)
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records), "utf-8")
    return made


def run(capsys, *args: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of `datapipe audit`."""
    status = cli.run(["audit", *args])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return status, said.out, said.err
