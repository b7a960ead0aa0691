"""What goes into an archive beside databases: the audit, the keys, and what is no secret."""

import io
import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Protocol

from ..domain.model.access import TenantId
from ..files import key_records
from ..files.keys import KeyFile
from ..files.redaction import LARGEST, RedactionFileRefused
from . import manifest as manifests

Tenants = Collection[TenantId] | None
"""Whose lines, keys and rules; none for everybody's."""


class Place(Protocol):
    """Where a service keeps what it has; the settings are one."""

    @property
    def db_path(self) -> Path: ...
    @property
    def keys_file(self) -> Path: ...
    @property
    def redaction_file(self) -> Path: ...
    @property
    def audit_file(self) -> Path: ...


def files(
    place: Place, tenants: Tenants, now: datetime, folder: Path, *, with_keys: bool
) -> Iterator[tuple[str, BinaryIO]]:
    """The files by their names in an archive, each to be read before the next.

    The audit comes first: what it does not tell has happened after the archive was begun.
    """
    if place.audit_file.exists():
        with TemporaryFile(dir=folder) as copy:
            copy.writelines(_lines(place.audit_file, tenants))
            copy.seek(0)
            yield manifests.AUDIT, copy
    if with_keys and (keys := _keys(place, tenants, now)):
        yield manifests.KEYS, io.BytesIO(keys)
    if place.redaction_file.exists():
        yield manifests.REDACTION, io.BytesIO(_rules(place.redaction_file, tenants))


def _lines(audit: Path, tenants: Tenants) -> Iterator[bytes]:
    with audit.open("rb") as file:
        for line in file:
            if line.endswith(b"\n") and (tenants is None or _is_of(line, tenants)):
                yield line  # one without an end is being written


def _is_of(line: bytes, tenants: Collection[TenantId]) -> bool:
    with suppress(ValueError, AttributeError, TypeError):
        tenant = json.loads(line).get("tenant")
        return tenant is None or tenant in tenants
    return False


def _keys(place: Place, tenants: Tenants, now: datetime) -> bytes:
    ring = KeyFile(place.keys_file, place.audit_file).settled()
    every = ring.keys.items()
    own = {id_: key for id_, key in every if tenants is None or key.tenant in tenants}
    return key_records.written(replace(ring, keys=own), now) if own else b""


def _rules(file: Path, tenants: Tenants) -> bytes:
    with file.open("rb") as source:
        data = source.read(LARGEST)
    if tenants is None:
        return data
    try:
        given = json.loads(data)
        return json.dumps({name: given[name] for name in given if name in tenants}).encode()
    except (ValueError, TypeError, RecursionError) as fault:
        raise RedactionFileRefused(f"The redaction file {file} cannot be used.") from fault
