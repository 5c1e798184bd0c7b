"""
A build as files that other trainers read, and such files as documents again.

documents.py  the pieces that packing cut a document into, put together
formats.py    what every format has
delivery.py   export(): whole or not there, with its books and its record in the build
nanogpt.py megatron.py olmo.py datatrove.py    documents: written and read here
mds.py litdata.py                              rows: written by their own packages

Hugging Face `datasets` needs none of this: load_dataset reads a build's folder as it is.
"""

from datapipe.feed.exports.delivery import FORMATS, Exported, export, read_export

__all__ = ["FORMATS", "Exported", "export", "read_export"]
