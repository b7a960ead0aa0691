"""Keys: what opens the service and for how long, and whom a request is then taken for."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from agentops_memory.errors import (
    Conflict,
    Invalid,
    SettingRefused,
    Unauthenticated,
    Unavailable,
)
from agentops_memory.http.gate import Gate, RateLimiter, is_open_allowed, must_have_keys
from agentops_memory.memory.access import (
    MOST_SECRETS,
    NOTHING,
    Caller,
    Key,
    KeyRing,
    Patterns,
    Role,
    TenantId,
    issued,
    key_name,
    revoked,
    rotated,
    tenant_id,
)
from agentops_memory.operations.files.keys import KeyFile, WatchedKeys
from agentops_memory.secrets.redaction import DEFAULT_RULES

from ..support.samples import for_each
from ..support.service import START, Clock

ACME = TenantId("acme")
BILLING = Patterns(("billing-*",))
HOUR = timedelta(hours=1)
INSTANT = timedelta(microseconds=1)
EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound
NOBODY: dict[str, object] = {}

STRANGER = f"amk_{'a' * 12}_{'B' * 43}"


def made(name: str = "ci") -> tuple[Key, str]:
    return issued(name, ACME, Role.WRITER, BILLING, START)


def ring(*keys: Key) -> KeyRing:
    return KeyRing(keys={key.id: key for key in keys}, was_ever_used=True)


def opens(key: Key, token: str, after: timedelta = timedelta()) -> bool:
    return ring(key).opened_by(token, START + after) == key


def test_a_record_shows_neither_the_secret_nor_what_is_kept_of_it() -> None:
    key, token = made()

    shown = repr(key)

    assert token[17:] not in shown
    assert not any(repr(part) in shown for s in key.secrets for part in (s.salt, s.digest))


def test_a_second_rotation_gives_no_secret_more_time_than_it_had_or_than_it_says() -> None:
    key, first = made()
    key, second = rotated(key, START, HOUR)

    longer, _ = rotated(key, START, 2 * HOUR)
    shorter, _ = rotated(key, START, HOUR / 2)

    assert opens(longer, first, HOUR - INSTANT)
    assert not opens(longer, first, HOUR)
    assert opens(longer, second, 2 * HOUR - INSTANT)
    assert not opens(shorter, first, HOUR / 2)


def test_a_key_has_only_so_many_secrets_at_a_time() -> None:
    key, _ = made()
    for _ in range(MOST_SECRETS - 1):
        key, _ = rotated(key, START, HOUR)
    assert len(key.secrets) == MOST_SECRETS

    with pytest.raises(Conflict, match="choose a shorter --keep-old"):
        rotated(key, START, HOUR)

    assert len(rotated(key, START + HOUR, HOUR)[0].secrets) == 2


def test_a_revoked_key_opens_nothing_also_with_its_secrets_and_stays_revoked() -> None:
    key, token = made()
    ended = replace(key, revoked_at=START)

    assert not opens(ended, token)
    assert revoked(ended, START + HOUR) == ended


def test_names_of_tenants_are_safe_as_files_and_those_of_keys_can_be_printed() -> None:
    for name in ("a", "0", "a-1-", "a" * 63):
        assert tenant_id(name) == name
    assert key_name(" J\u00fcrgen's laptop ") == "J\u00fcrgen's laptop"
    no_tenants = ["", "-a", "A", "a.b", "a/b", "a b", "a\n", "\u0661", "a" * 64, "\u00e4"]
    no_keys = ["", "  ", "x" * 101, "a\nb", "a\x1b[31m", "a\udc80", "\u202e"]
    for read, said, names in ((tenant_id, "tenant", no_tenants), (key_name, "key", no_keys)):
        for name in names:
            with pytest.raises(Invalid, match=f"{said}'s name"):
                read(name)


class Door:
    """A gate over a key file: who comes in with which headers."""

    def __init__(self, path: Path, *, is_open_allowed: bool) -> None:
        self.path = path
        self.clock = Clock()
        self.file = KeyFile(path, audit=path.with_name("audit"))
        self._gate = Gate(
            keys=WatchedKeys(self.file), is_open_allowed=is_open_allowed, clock=self.clock,
            require_rate=RateLimiter(None).require, rules=lambda _: DEFAULT_RULES,
        )  # fmt: skip

    def made(self) -> tuple[Key, str]:
        key, token = made()
        self.file.create(key, at=START, by=NOBODY)
        return key, token

    def caller(self, **headers: str) -> Caller:
        """Who comes; `x_api_key="..."` is the header X-Api-Key."""
        named = {name.replace("_", "-").title(): value for name, value in headers.items()}
        return self._gate.identify(Headers(named))

    def lets_in(self, token: str) -> bool:
        try:
            return self.caller(x_api_key=token) is not None
        except Unauthenticated:
            return False


@pytest.fixture
def door(tmp_path: Path) -> Door:
    """Of a service that may be open."""
    return Door(tmp_path / "keys", is_open_allowed=True)


def test_a_service_that_may_not_be_open_stays_closed_after_a_reset(tmp_path: Path) -> None:
    guarded = Door(tmp_path / "keys", is_open_allowed=False)
    _, token = guarded.made()
    assert guarded.lets_in(token)

    guarded.file.reset(at=START, by=NOBODY)

    for path in (guarded.path, None):  # also without the file of the reset
        with pytest.raises(Unauthenticated):
            guarded.caller()
        if path:
            path.unlink()


def test_a_key_makes_the_caller_what_its_record_says(door: Door) -> None:
    key, token = door.made()

    caller = door.caller(authorization=f"Bearer {token}")

    assert caller == Caller(
        tenant=ACME, role=Role.WRITER, projects=BILLING, agents=NOTHING, coordinates=False,
        key=key.id,
    )  # fmt: skip


def test_the_clock_ends_the_grace_of_an_old_secret_without_a_change_of_the_file(door: Door) -> None:
    key, old = door.made()
    _, new = door.file.rotate(key.id, HOUR, at=START, by=NOBODY)

    assert (door.lets_in(old), door.lets_in(new)) == (True, True)
    door.clock.now = START + HOUR - INSTANT
    assert door.lets_in(old)
    door.clock.now = START + HOUR
    assert (door.lets_in(old), door.lets_in(new)) == (False, True)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(), lambda path: path.write_text("{"),
        lambda path: path.write_bytes(b""), lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), path.symlink_to("nowhere")),
        lambda path: (path.unlink(), path.symlink_to(path)),
    ],
    ids=["gone", "malformed", "empty", "a folder", "a dangling link", "a link to itself"],
)  # fmt: skip
def test_keys_that_cannot_be_read_let_nobody_in_until_they_can(
    spoil: Callable[[Path], object], door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    _, token = door.made()
    assert door.lets_in(token)
    kept = door.path.rename(door.path.with_name("kept"))
    door.path.write_bytes(kept.read_bytes())
    assert door.lets_in(token)

    spoil(door.path)
    for _ in range(3):
        with pytest.raises(Unavailable, match="cannot be read") as refused:
            door.caller(x_api_key=token)

    assert str(door.path) not in str(refused.value)
    (line,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert line.getMessage() == "the keys cannot be read"
    if door.path.is_dir():
        door.path.rmdir()
    kept.replace(door.path)
    assert door.lets_in(token)


@for_each(
    "auth, host, expected",
    [
        ("", "127.0.0.1", True), ("", "127.200.3.4", True), ("", "::1", True),
        ("", "LocalHost", True), ("", "", False), ("", EVERYWHERE, False), ("", "::", False),
        ("", "10.0.0.1", False), ("", "128.0.0.1", False), ("", "localhost.example", False),
        ("", "127.0.0.1.example", False), ("none", EVERYWHERE, True), ("keys", "127.0.0.1", False),
    ],
)  # fmt: skip
def test_a_service_may_be_open_on_a_loopback_address_or_when_told_so(
    auth: str, host: str, expected: bool
) -> None:
    assert is_open_allowed(auth, host) is expected


@for_each(
    "auth, host, said",
    [
        ("", EVERYWHERE, "MEMORY_LISTEN: 0.0.0.0 .*keys create.*127.0.0.1.*MEMORY_AUTH=none"),
        ("", "", "MEMORY_LISTEN: every interface .*keys create"),
        ("keys", "127.0.0.1", "MEMORY_AUTH: 'keys' requires a key.*keys create"),
    ],
)
def test_a_start_that_would_serve_nobody_is_refused_with_what_to_do(
    auth: str, host: str, said: str
) -> None:
    with pytest.raises(SettingRefused, match=rf"^{said}.*\.$"):
        must_have_keys(KeyRing(), auth, host)

    must_have_keys(ring(made()[0]), auth, host)
    must_have_keys(ring(revoked(made()[0], START)), auth, host)
    must_have_keys(KeyRing(), "", "127.0.0.1")
    must_have_keys(KeyRing(), "none", EVERYWHERE)
