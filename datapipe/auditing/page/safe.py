"""Text of documents in a page: as text for a reader's eyes, as JSON inside a script element."""

import json
import re
from typing import Any

from markupsafe import Markup

# what a reader cannot see or what turns the text around it: controls but tab and line feed, surrogates,
# bidi embeddings, overrides and isolates, invisible spaces
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
# what HTML, a line of script or UTF-8 stumbles over and JSON itself leaves raw, beside < > &
_RAW = re.compile("[\x7f-\x9f\u200b\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]")
_JOINT = re.compile(r"(?<=[/_.-])(?=[^/_.-])")
# first the backslash: then each \\" that is left is a quote within a string, and no attribute can end there either
_ESCAPED = (
    ("\\\\", "\\u005c"),
    ('\\"', "\\u0022"),
    ("<", "\\u003c"),
    (">", "\\u003e"),
    ("&", "\\u0026"),
)


def visible(value: Any) -> Any:
    """A string with hidden characters written out as ⟨U+202E⟩; markup and all that is no string as it is."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", value)


def breaking(name: str) -> Markup:
    """A name that a narrow column may break where people would: behind / _ - and . alone."""
    return Markup("<wbr>").join(visible(piece) for piece in _JOINT.split(name))


def script_json(value: Any) -> Markup:
    """Compact JSON in which an HTML parser finds no end, as UTF-8 can encode it; parsed, the strings are unchanged."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for raw, escaped in _ESCAPED:
        text = text.replace(raw, escaped)
    text = _RAW.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return Markup(text)  # noqa: S704 -- nothing that marks up is left
