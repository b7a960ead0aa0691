"""What stands in the file of keys: one table for each noun, of how each of its fields is read."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from ...errors import Invalid
from ...memory.model.access import Role, patterns, tenant_id
from ...memory.model.agents import agent_patterns
from ...memory.model.keys import (
    DIGEST_BYTES,
    SALT_BYTES,
    Key,
    KeyRing,
    Secret,
    key_id,
    key_name,
    public_fields,
)
from ...recall.text import instants

VERSION = 1

Readers = Mapping[str, Callable[[Any], object]]


def written(ring: KeyRing, at: datetime) -> bytes:
    """The keys as the file has them."""
    document: dict[str, object] = {
        "version": VERSION,
        "keys": [*map(record_of, ring.keys.values())],
    }
    if not ring.was_ever_used:
        document["reset_at"] = _rendered(at)  # an empty list alone opens nothing
    return json.dumps(document, indent=1).encode() + b"\n"


def record_of(key: Key) -> dict[str, object]:
    """A key as it is kept, with digests of its secrets."""
    return {
        "id": key.id,
        **public_fields(key),
        "created_at": _rendered(key.created_at),
        "revoked_at": key.revoked_at and _rendered(key.revoked_at),
        "secrets": [
            {
                "salt": secret.salt.hex(),
                "digest": secret.digest.hex(),
                "until": secret.until and _rendered(secret.until),
            }
            for secret in key.secrets
        ],
    }


def _rendered(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def read(data: bytes) -> KeyRing:
    """The keys in the bytes; a ValueError says what is wrong, and shows only ids and names."""
    document = _fields(_loaded(data), _DOCUMENT)
    keys = [_key(number, record) for number, record in enumerate(document["keys"], 1)]
    by_id = {key.id: key for key in keys}
    if len(by_id) < len(keys):
        raise ValueError("two of its keys have the same id")
    return KeyRing(keys=by_id, was_ever_used=bool(keys) or document["reset_at"] is None)


def _loaded(data: bytes) -> object:
    try:
        document = json.loads(data, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno} is no JSON") from error
    except UnicodeDecodeError as error:
        raise ValueError("it is no UTF-8") from error
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError("it has no version")
    if version > VERSION:
        raise ValueError(f"it has version {version}, which a newer program wrote")
    return document


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field occurs twice in one place")
    return fields


def _key(number: int, record: object) -> Key:
    try:
        key = Key(**_fields(record, _KEY))
        if not key.secrets and key.revoked_at is None:
            raise ValueError("it has no secret")
    except ValueError as fault:
        raise ValueError(f"{_label(number, record)}: {fault}") from fault
    return key


def _label(number: int, record: object) -> str:
    label = f"key number {number}"
    if isinstance(record, dict):
        with suppress(*_FAULTS):
            label = f"key {key_id(record['id'])}"
        with suppress(*_FAULTS):
            label += f" ({key_name(record['name'])})"
    return label


def _fields(record: object, readers: Readers) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    for name in record.keys() - readers.keys():
        raise ValueError(f"{name[:20]!r} is no field that belongs there")
    return {name: _field(name, reader, record.get(name)) for name, reader in readers.items()}


def _field(name: str, reader: Callable[[Any], object], value: object) -> object:
    try:
        return reader(value)
    except Invalid as refusal:
        raise ValueError(str(refusal).removesuffix(".")) from refusal
    except _FAULTS as fault:  # whose text may show the value
        raise ValueError(f"its {name} cannot be used") from fault


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _instant(text: str) -> datetime:
    if (at := instants.parsed(text)) is None:
        raise ValueError
    return at


def _instant_if_any(text: str | None) -> datetime | None:
    return None if text is None else _instant(text)


def _bytes(count: int) -> Callable[[str], bytes]:
    def parse(text: str) -> bytes:
        if len(value := bytes.fromhex(text)) != count:
            raise ValueError
        return value

    return parse


def _secrets(value: object) -> tuple[Secret, ...]:
    return tuple(Secret(**_fields(record, _SECRET)) for record in _list(value))


def _yes_if_any(value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        raise TypeError
    return bool(value)


_FAULTS = (Invalid, ValueError, TypeError, AttributeError, KeyError)
_DOCUMENT: Readers = {"version": int, "keys": _list, "reset_at": _instant_if_any}
_KEY: Readers = {
    "id": key_id,
    "name": key_name,
    "tenant": tenant_id,
    "role": Role,
    "projects": lambda value: patterns(tuple(_list(value))),
    "agents": lambda value: agent_patterns([] if value is None else _list(value)),
    "coordinates": _yes_if_any,
    "created_at": _instant,
    "revoked_at": _instant_if_any,
    "secrets": _secrets,
}
_SECRET: Readers = {
    "salt": _bytes(SALT_BYTES),
    "digest": _bytes(DIGEST_BYTES),
    "until": _instant_if_any,
}
