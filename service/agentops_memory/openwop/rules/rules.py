"""Which refs and ids there can be, and what is refused (OpenWOP CTI-1, SR-1)."""

import re
from collections.abc import Iterator
from enum import Enum

from ...errors import BadFields, Conflict, Denied, NotFound
from ...memory.model.access import TenantId
from ...memory.model.space import MemoryRef
from ...recall.text.visible import has_controls
from ..model.entries import MADE
from .screen import Screen

NO_ENTRY = "memory entry not found"
LONGEST_REF = LONGEST_ID = 256  # code points
LONGEST_RUN, LONGEST_NODE = 128, 128
AGENT_LENGTHS = range(3, 257)
MAX_TAGS = 50
ARCHIVE, DISTILLED, COMPACTED = "archive", "distilled", "compacted-from:"

_OWNERS = re.compile(
    r"(?:workspaces|tenants)/(?P<folder>[^/]*)/"
    r"|tenant:(?P<label>[^:/]*)(?:[:/]|$)"
    r"|mem_tenant:(?P<pair>.*?)_agent:",
    re.DOTALL,
)
_SEPARATORS = re.compile(r"[/\\]")


class Standing(Enum):
    """What a ref is to a tenant."""

    LEGAL = "legal"
    MALFORMED = "malformed"
    FOREIGN = "another tenant's"


class IdTaken(Conflict):
    """A live entry has the id, and says something else."""

    code = "memory_id_conflict"

    def __init__(self) -> None:
        super().__init__("Another live entry has this id.")


class MemoryChanged(Conflict):
    """What was named is not live any more."""

    code = "memory_changed"

    def __init__(self) -> None:
        super().__init__("An entry that was named is not live.")


def standing(ref: MemoryRef, tenant: TenantId, screen: Screen) -> Standing:
    """What the ref is, before any look into storage; one that holds a secret is malformed."""
    if is_malformed(ref) or screen.changes(ref):
        return Standing.MALFORMED
    owner = _OWNERS.match(ref)
    if owner is not None and owner[owner.lastgroup or 0].lower() != tenant:
        return Standing.FOREIGN
    return Standing.LEGAL


def is_malformed(ref: str) -> bool:
    """Whether a text can be no ref, whoever asks."""
    too_long = not 0 < len(ref) <= LONGEST_REF
    return too_long or has_controls(ref) or ".." in _SEPARATORS.split(ref)


def is_readable(ref: MemoryRef, tenant: TenantId, screen: Screen) -> bool:
    """Whether there may be anything under the ref."""
    return standing(ref, tenant, screen) is Standing.LEGAL


def require_ref(ref: MemoryRef, tenant: TenantId, screen: Screen, field: str = "memoryRef") -> None:
    """Refuse with BadFields a ref that can be none, with Denied another tenant's."""
    found = standing(ref, tenant, screen)
    if found is Standing.MALFORMED:
        raise BadFields([(field, "is no memory ref")])
    if found is Standing.FOREIGN:
        raise Denied("This ref names another tenant.")


def require_plain(screen: Screen, **names: str | None) -> None:
    """Refuse with BadFields names that hold a secret: a name cannot be rewritten."""
    faults = [
        (field, "holds a secret") for field, name in names.items() if name and screen.changes(name)
    ]
    if faults:
        raise BadFields(faults)


def reserved(tags: tuple[str, ...]) -> Iterator[str]:
    """The tags that only the service gives."""
    return (tag for tag in tags if tag in (ARCHIVE, DISTILLED) or tag.startswith(COMPACTED))


def is_reserved(name: str) -> bool:
    """Whether an id has a form that only the service gives."""
    return MADE.fullmatch(name) is not None


def no_entry() -> NotFound:
    """The one answer for whatever is not there, or not to be known."""
    return NotFound(NO_ENTRY)


def unknown_before() -> BadFields:
    """The refusal of a page that begins at what is not known."""
    return BadFields([("before", "is the id of no entry")])
