"""Keys that come back with an archive: none that was revoked, as far as anybody can know."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ..domain.model.access import TenantId
from ..domain.model.keys import Key, KeyRing
from ..files import key_records
from ..files.audit_trail import Since
from ..files.keys import LARGEST, By, KeyFile, Stamp
from .archive_files import Place
from .archive_reading import ArchiveRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysPlan:
    """What becomes of the keys in an archive. What is known of one now goes before that."""

    new: tuple[Key, ...]  # that are to be known again, revoked ones too
    known: tuple[Key, ...]  # that stay as they are now
    ended: tuple[Key, ...]  # that stay away, as they were revoked or changed since
    seen: Stamp  # what the file of keys was when this was planned

    @property
    def opening(self) -> tuple[Key, ...]:
        """Those that open something again."""
        return tuple(key for key in self.new if key.revoked_at is None)


def read_ring(file: Path) -> KeyRing:
    """The keys of an archive, in a file that was taken from it."""
    if file.stat().st_size > LARGEST:
        raise ArchiveRefused("The keys in the archive cannot be used: they are too large.")
    try:
        return key_records.read(file.read_bytes())
    except (ValueError, RecursionError) as fault:
        raise ArchiveRefused(f"The keys in the archive cannot be used: {fault}.") from fault


def planned_keys(
    place: Place, ring: KeyRing, tenants: Collection[TenantId], since: Since
) -> KeysPlan:
    """What would become of those keys in the archive that open these tenants; none means all."""
    seen, present = KeyFile(place.keys_file, place.audit_file).read()
    own = [key for key in ring.keys.values() if not tenants or key.tenant in tenants]
    unknown = [key for key in own if key.id not in present.keys]
    return KeysPlan(
        new=tuple(key for key in unknown if not since.has_ended(key)),
        known=tuple(present.keys[key.id] for key in own if key.id in present.keys),
        ended=tuple(key for key in unknown if since.has_ended(key)),
        seen=seen,
    )


def bring_back(plan: KeysPlan, place: Place, *, at: datetime, by: By) -> None:
    """Do what is planned."""
    if plan.new:
        KeyFile(place.keys_file, place.audit_file).bring_back(plan.new, plan.seen, at=at, by=by)
