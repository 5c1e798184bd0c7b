"""
What can go wrong, by what the user has to do about it; the number is the exit status.

* DatapipeError
  x ManifestError    2  edit the manifest or the flag: names file, line, key, what was expected
  x DataError        3  mend the input: names source, file, line or row
  x IntegrityError   4  bytes differ from what was recorded: names the file
  x DriftError       5  made from other inputs or by another recipe: names what differs
  x PolicyError      6  a limit or policy says no: names the figure
  x IncompleteError  7  not everything could be seen: names what could not
  x MachineError     8  disk, memory, permission or a lock: names the resource

Anything else that escapes is a bug of ours: it keeps its traceback, and the status is 1.
"""


class DatapipeError(Exception):
    """What a user can do something about; its text is the whole message."""

    status = 1


class ManifestError(DatapipeError):
    status = 2


class DataError(DatapipeError):
    status = 3


class IntegrityError(DatapipeError):
    status = 4


class DriftError(DatapipeError):
    status = 5


class PolicyError(DatapipeError):
    status = 6


class IncompleteError(DatapipeError):
    status = 7


class MachineError(DatapipeError):
    status = 8
