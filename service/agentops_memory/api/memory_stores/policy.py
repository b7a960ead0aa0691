"""What this dialect of memory stores allows, where the dialects differ."""

from ...domain.stores.rules import Policy

MAX_NAME = 64  # characters of a store's name, trimmed

POLICY = Policy(
    paths_nest=True,
    unchanged_is_change=True,
    done_is_done=False,
    repeats_are_refused=True,
    archived_keeps_entries=True,
    current_is_redacted=True,
    redaction_takes_all=False,
    longest_name=MAX_NAME,
)

MAX_BODY = 4 * 1024 * 1024  # bytes
SHOWN, MOST_SHOWN = 20, 100  # items of a page
SNIPPET = 300  # characters
