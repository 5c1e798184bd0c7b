"""
A bucket of 200,000 near copies through both dedups, with little memory: seconds and peak memory.

    python bench/giant.py [FOLDER] [--copies 200000] [--memory 1000000000] [--workers 2]

FOLDER holds a corpus of make_planted.py; without one it is made: 10 MB of text and the copies on top of it.
"""

import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in (".", "tests")]

import builders

from bench.near_dedup import planted
from bench.two_million import options, run


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--copies", default="200000")
    asked = parser.parse_args()
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    with tempfile.TemporaryDirectory() as scratch:
        made = ("--size", "10MB", "--giant", asked.copies)
        folder = asked.folder or planted(shared, Path(scratch) / "giant", *made)
        pieces = (
            [{"id": f"{path.stem}:{record['id']}", "text": record["text"]} for record in records]
            for path in sorted(folder.glob("*-*.jsonl"))
            for records in builders.read_jsonl(path)
        )
        run(pieces, asked.memory, asked.workers)


if __name__ == "__main__":
    main()
