"""
Reading: from files to documents.

    plan(manifest, workers=n) -> Plan           which files, hashed; which pieces
    plan_each(manifest, workers=n) -> Planned   the same of what can be read, and what cannot
    rows_of(spec, piece)                        the rows of a piece, for who keeps no documents
    run(plan, manifest, work) -> ReadResult     parts of documents in the unit store, and a book for every input
    sample(plan, manifest, work, n, sizes) -> ReadResult    about n records of it
    over_limits(result, manifest) -> messages   what limits.rejected and limits.quarantined say to it
    without_documents(result) -> messages       sources that gave nothing at all
    write_refused(result, folder)               rejected.parquet, quarantine.parquet
    admit(result, manifest, work) -> Documents  names, sample and snapshots: which of them are documents of the build
"""

from datapipe.read.admit import VERSION as SAMPLE_VERSION
from datapipe.read.admit import admit
from datapipe.read.part import VERSION, rows_of
from datapipe.read.planning import Input, Piece, Plan, Planned, plan, plan_each
from datapipe.read.result import ReadResult, over_limits, run, without_documents, write_refused
from datapipe.read.sampling import sample

__all__ = [
    "SAMPLE_VERSION",
    "VERSION",
    "Input",
    "Piece",
    "Plan",
    "Planned",
    "ReadResult",
    "admit",
    "over_limits",
    "plan",
    "plan_each",
    "rows_of",
    "run",
    "sample",
    "without_documents",
    "write_refused",
]
