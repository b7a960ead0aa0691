"""The rules of the dialect: where it differs from the other one, and its paths."""

import unicodedata

from ...domain.errors import Invalid
from ...domain.stores.rules import MAX_PATH, Policy

POLICY = Policy(
    paths_nest=False,
    unchanged_is_change=False,
    done_is_done=True,
    repeats_are_refused=False,
    archived_keeps_entries=False,
    current_is_redacted=False,
    redaction_takes_all=True,
)

MAX_PAGE = 100
MAX_FULL_PAGE = 20  # of memories or versions with their contents
DEFAULT_PAGE = 20

_SEPARATORS = ("Zl", "Zp")  # U+2028 and U+2029
_FORMAT = "Cf"


def stored_path(path: str) -> str:
    """A path as it is stored, without its slash; Invalid for one that the dialect refuses.

    Segments and control characters are the domain's to refuse.
    """
    if len(path.encode()) > MAX_PATH:
        raise Invalid(f"path: it has at most {MAX_PATH:,} bytes, the leading '/' included.")
    if not unicodedata.is_normalized("NFC", path):
        raise Invalid("path: it must be in Unicode's normalization form C.")
    if any(unicodedata.category(sign) in (_FORMAT, *_SEPARATORS) for sign in path):
        raise Invalid("path: it has no format characters, U+2028 or U+2029.")
    return path.removeprefix("/")


def stored_prefix(prefix: str) -> str:
    """The beginning of stored paths that a prefix means: a folder, or the whole store."""
    if not (prefix.startswith("/") and prefix.endswith("/")):
        raise Invalid("path_prefix: it must begin and end with '/'.")
    return prefix.removeprefix("/")


def shown_path(path: str) -> str:
    """A stored path, or the beginning of some, as this dialect shows it."""
    return f"/{path}"
