"""What an archive says of itself: when it was made, of what, and how each part is told."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from ...errors import Invalid
from ...memory.model.access import DEFAULT_TENANT, TenantId, tenant_id
from ...recall.text.instants import parsed, rendered
from ...sqlite.schema.contents import Contents, Counts

FORMAT = 1
NAME = "manifest.json"
KEYS, REDACTION, AUDIT, SEAL = "keys.json", "redaction.json", "audit.jsonl", "seal.json"

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file in an archive."""

    name: str
    size: int  # bytes
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPart:
    """The database of a tenant in an archive."""

    tenant: TenantId
    member: Member
    contents: Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that is in an archive."""

    made_at: datetime
    program: str  # its version
    is_of_all: bool  # tenants that there were
    tenants: tuple[TenantPart, ...]
    others: tuple[Member, ...]

    @property
    def damaged(self) -> tuple[str, ...]:
        """The values that are known to be damaged, each with its tenant."""
        parts = ((part.tenant, part.contents.damaged or ()) for part in self.tenants)
        return tuple(f"{tenant}, {value}" for tenant, values in parts for value in values)

    @property
    def members(self) -> Iterator[Member]:
        """Every file but the manifest itself."""
        yield from (part.member for part in self.tenants)
        yield from self.others

    def other(self, name: str) -> Member | None:
        """A file that is no database; none if the archive has none of this name."""
        return next((member for member in self.others if member.name == name), None)


def member_of(tenant: TenantId) -> str:
    """The name of a tenant's database in an archive."""
    return "default.db" if tenant == DEFAULT_TENANT else f"tenants/{tenant}.db"


def written(manifest: Manifest) -> bytes:
    """The manifest as an archive has it."""
    return json.dumps(document(manifest), indent=1).encode() + b"\n"


def document(manifest: Manifest) -> dict[str, Any]:
    """The manifest as JSON."""
    return {
        "format": FORMAT,
        "program": manifest.program,
        "made_at": rendered(manifest.made_at),
        "all_tenants": manifest.is_of_all,
        "tenants": [_of_part(part) for part in manifest.tenants],
        "members": [_of_member(member) for member in manifest.others],
    }


def _of_part(part: TenantPart) -> dict[str, Any]:
    changed_at = part.contents.changed_at
    return {
        "tenant": part.tenant,
        **_of_member(part.member),
        "format": part.contents.format,
        "counts": asdict(part.contents.counts),
        "changed_at": changed_at and rendered(changed_at),
        "damaged": part.contents.damaged,
    }


def _of_member(member: Member) -> dict[str, Any]:
    return {"member": member.name, "bytes": member.size, "sha256": member.sha256}


def read(data: bytes) -> Manifest:
    """The manifest in the bytes. A ValueError says what is wrong."""
    found = json.loads(data)
    if not isinstance(found, dict) or type(found.get("format")) is not int:
        raise ValueError("it is no manifest")
    if found["format"] != FORMAT:
        raise ValueError(f"it has format {found['format']}, which another version of this made")
    try:
        return _manifest(found)
    except (KeyError, TypeError, AttributeError, Invalid) as fault:
        raise ValueError("a field of it is missing, or is something else") from fault


def _manifest(found: dict[str, Any]) -> Manifest:
    manifest = Manifest(
        made_at=_instant(found["made_at"]),
        program=_line(found["program"]),
        is_of_all=found["all_tenants"] is True,
        tenants=tuple(_part(part) for part in found["tenants"]),
        others=tuple(_member(member) for member in found["members"]),
    )
    if {member.name for member in manifest.others} - {KEYS, REDACTION, AUDIT, SEAL}:
        raise ValueError("it names a file that no archive has")
    names = [member.name for member in manifest.members]
    if len(set(names)) < len(names):
        raise ValueError("it names a file twice")
    return manifest


def _part(found: dict[str, Any]) -> TenantPart:
    damaged = found.get("damaged")  # missing if it was made before anybody looked
    part = TenantPart(
        tenant=tenant_id(found["tenant"]),
        member=_member(found),
        contents=Contents(
            format=_number(found["format"]),
            counts=Counts(**{it.name: _number(found["counts"][it.name]) for it in fields(Counts)}),
            changed_at=found["changed_at"] and _instant(found["changed_at"]),
            damaged=None if damaged is None else tuple(map(_line, damaged)),
        ),
    )
    if part.member.name != member_of(part.tenant):
        raise ValueError("a database of it has another tenant's name")
    return part


def _member(found: dict[str, Any]) -> Member:
    if not _DIGEST.fullmatch(found["sha256"]):
        raise ValueError("a digest of it is none")
    return Member(name=found["member"], size=_number(found["bytes"]), sha256=found["sha256"])


def _number(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise ValueError("a number of it is none")
    return found


def _instant(found: str) -> datetime:
    if (at := parsed(found)) is None:
        raise ValueError("a time of it is none")
    return at


def _line(found: str) -> str:
    if not found.isprintable():
        raise ValueError("a text of it cannot be shown")
    return found
