"""`restore`: nothing is replaced before all was verified, and nothing revoked comes back."""

import json
import os
import re
import shutil
import sqlite3
import stat
import zipfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.memory.access import TenantId
from agentops_memory.operations import restore as restores
from agentops_memory.operations.files.keys import KeysLost
from agentops_memory.operations.files.service_lock import service_lock
from agentops_memory.settings import settings
from agentops_memory.sqlite import snapshots as replacing
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.open_files import copies_of, kept_name
from agentops_memory.sqlite.snapshots import RestoreRefused
from agentops_memory.sqlite.tenants import tenant_file

from ..support.archives import all_rows, at, backed_up, repacked, told_truly
from ..support.callers import audit, key_file, made_key, revoke
from ..support.damages import CASES
from ..support.erasing import erased
from ..support.process import stored
from ..support.samples import sampled
from ..support.service import serving

Members = dict[str, bytes]
Manifest = dict[str, Any]
Change = Callable[[Members, Manifest], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a database with three observations, one of another tenant."""
    folder = tmp_path_factory.mktemp("made")
    path = folder / "memory.db"
    at(path).say("tenants", "create", "acme")
    for tenant, word in (("default", "apple"), ("default", "pear"), ("acme", "plum")):
        save(path, word, tenant)
    return folder


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A copy of it, without a service."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "memory.db"


def save(path: Path, word: str, tenant: str = "default") -> None:
    at(path).say("save", word, f"about {word}", "--project", "shop", "--tenant", tenant)


OPENING = re.compile(r"^The key .* \((\w+)\) gives access to the tenant ", re.MULTILINE)


def words(path: Path) -> set[str]:
    return {content.removeprefix("about ") for content in stored(path)}


@pytest.mark.slow
def test_it_puts_everything_where_nothing_was(path: Path, tmp_path: Path) -> None:
    (tmp_path / "memory.db.redaction").write_text('{"acme": {"allow": ["x"]}}')
    archive, new = backed_up(path, tmp_path), tmp_path / "deep" / "new.db"
    planned = at(new).say("restore", archive, "--dry-run")
    assert not new.parent.exists()

    printed = at(new).say("restore", archive)

    acme = tenant_file(new, "acme")  # type: ignore[arg-type]
    assert all_rows(new) == all_rows(path)
    assert words(acme) == {"plum"}
    assert re.findall(r"^(?:default|acme) +(\d+) ", planned, re.MULTILINE) == ["2", "1"]
    assert "Restored 2 tenants." in printed
    assert {stat.S_IMODE(file.stat().st_mode) for file in (new, acme)} == {0o600}
    assert json.loads(Path(f"{new}.redaction").read_text()) == {"acme": {"allow": ["x"]}}
    actions = [line["action"] for line in audit(new)]
    assert actions == ["tenant.created", "audit.restored", "archive.restored"]
    assert sorted(it.name for it in new.parent.iterdir()) == [
        "new.db", "new.db.audit", "new.db.lock", "new.db.redaction", "new.db.tenants",
    ]  # fmt: skip
    with serving(new) as service:
        assert service.http.get("/stats").json()["total_observations"] == 2


@pytest.mark.slow
def test_what_is_there_is_replaced_by_force_alone_and_kept_also_behind_a_link(
    path: Path, tmp_path: Path
) -> None:
    archive, expected = backed_up(path, tmp_path), all_rows(path)
    save(path, "late")
    path.chmod(0o640)
    (tmp_path / "links").mkdir()
    (link := tmp_path / "links" / "memory.db").symlink_to(path)

    refused = at(path).run("restore", archive)
    assert (refused.exit_code, "--force" in refused.stderr) == (1, True)
    assert words(path) == {"apple", "pear", "late"}
    assert "3 observations, changed" in refused.stdout

    for through, kept in ((path, "memory.db.before-restore"), (link, "memory.db.before-restore-2")):
        at(through).say("restore", archive, "--force")
        assert all_rows(path) == expected
        assert words(tmp_path / kept) == {"apple", "pear", "late"}
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        save(path, "late")
    assert link.is_symlink()
    assert [copy.name for copy in copies_of(path)] == [
        "memory.db.before-restore", "memory.db.before-restore-2",
    ]  # fmt: skip


@pytest.mark.slow
def test_nothing_happens_while_anybody_has_the_database_open(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacing, "OPEN_TIMEOUT", timedelta(milliseconds=10))
    archive, before = backed_up(path, tmp_path), path.read_bytes()

    with service_lock(path):
        served = at(path).run("restore", archive, "--force")
    with closing(connect(path)) as other:
        other.execute("SELECT count(*) FROM memories").fetchone()
        opened = at(path).run("restore", archive, "--force")

    assert (served.exit_code, "End that service first" in served.stderr) == (1, True)
    assert (opened.exit_code, "Another program has" in opened.stderr) == (3, True)
    assert words(path) == {"apple", "pear"}
    assert path.read_bytes()[100:] == before[100:]


@pytest.mark.slow
def test_one_that_waited_for_the_old_database_writes_nothing_into_the_new(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = backed_up(path, tmp_path)
    late = sqlite3.connect(path, isolation_level=None, timeout=0.001)

    def opened_meanwhile(file: Path) -> Path:
        if file == path:
            with pytest.raises(Exception, match="locked"):
                late.execute("SELECT count(*) FROM memories")
        return kept_name(file)

    monkeypatch.setattr(replacing, "kept_name", opened_meanwhile)
    at(path).say("restore", archive, "--force")

    with closing(late), pytest.raises(Exception, match="readonly"):
        late.execute("PRAGMA journal_mode = WAL")
    assert words(path) == {"apple", "pear"}
    assert not Path(f"{path}-wal").exists()


@pytest.mark.slow
def test_an_archive_of_some_tenants_touches_nothing_of_the_others(
    path: Path, tmp_path: Path
) -> None:
    archive = backed_up(path, tmp_path / "acme.zip", "--tenant", "acme")
    save(path, "late")
    Path(f"{path}.audit").unlink()
    before = path.read_bytes()

    printed = at(path).say("restore", archive, "--force")

    assert re.findall("^acme ", printed, re.MULTILINE) == ["acme "]
    assert "The tenant default is left unchanged." in printed
    assert "the archive's copy is restored" not in printed
    assert path.read_bytes() == before
    assert [line["action"] for line in audit(path)] == ["archive.restored"]


@pytest.mark.parametrize("name", sampled(CASES, 6))
def test_whatever_is_there_is_replaced_or_refused_with_a_sentence(
    name: str, path: Path, tmp_path: Path
) -> None:
    archive, expected = backed_up(path, tmp_path), all_rows(path)
    CASES[name].damage(path)

    planned = at(path).run("restore", archive, "--dry-run")
    done = at(path).run("restore", archive, "--force")

    if name in ("a folder", "a pipe", "a pipe beside it", "a dangling link beside it"):
        assert "is not a file; move it away." in planned.output
        assert "is not a file; move it away." in done.output
    else:
        assert planned.exit_code == 0
        assert all_rows(path) == expected


def _within_largest(archive: Path) -> int:
    """A place among the bytes of the largest file in an archive, and of no header."""
    with zipfile.ZipFile(archive) as opened:
        largest = max(opened.infolist(), key=lambda it: it.compress_size)
    return largest.header_offset + largest.compress_size // 2


@pytest.mark.slow
def test_archives_that_are_not_whole_or_not_ours_change_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, before = backed_up(path, tmp_path / "a.zip"), all_rows(path)
    data, within = archive.read_bytes(), _within_largest(archive)
    after = within + 64  # one bit alone may choose among zeros, and change nothing
    bad = tmp_path / "bad.zip"
    spoiled: dict[str, bytes] = {
        "cut": data[:-1], "half": data[: len(data) // 2], "empty": b"",
        "text": b"not a zip at all" * 99,
        "flipped": data[:within] + bytes(it ^ 255 for it in data[within:after]) + data[after:],
        "comment": data[:-1] + b"x",
    }  # fmt: skip
    for name, content in spoiled.items():
        bad.write_bytes(content)
        is_changed = name in ("cut", "comment")
        reason = "its manifest was changed" if is_changed else "it is incomplete"
        _assert_refused(path, bad, reason)
    for change, reason in CHANGES:
        _assert_refused(path, repacked(archive, bad, change), reason)
    repacked(archive, bad, lambda *_: None, packed=zipfile.ZIP_LZMA)
    _assert_refused(path, bad, "has a compression this program never uses")
    _assert_refused(path, tmp_path / "none.zip", "No such file")
    _assert_refused(path, tmp_path, "it is not a file")
    os.mkfifo(pipe := tmp_path / "pipe")
    both_ends = os.open(pipe, os.O_RDWR)  # so that nobody waits for the other one
    _assert_refused(path, pipe, "it is not a file")
    os.close(both_ends)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    _assert_refused(path, archive, "bytes free in")

    at(tmp_path / "deep" / "new.db").run("restore", tmp_path / "none.zip")
    assert not (tmp_path / "deep").exists()
    assert all_rows(path) == before
    assert not list(tmp_path.glob(".agentops*"))
    assert not (tmp_path.parent / "evil.db").exists()


def _assert_refused(path: Path, archive: Path, reason: str) -> None:
    options = ["--keys"] if "keys" in reason else []
    done = at(path).run("restore", archive, "--force", *options)
    assert (done.exit_code, done.stdout) == (1, ""), (reason, done.output)
    assert done.stderr.startswith("agentops-memory: "), reason
    assert reason in done.stderr, (reason, done.stderr)


def _no_database(members: Members, manifest: Manifest) -> None:
    members["default.db"] = b"no database" * 999
    told_truly(members, manifest)


def _of_another_program(members: Members, manifest: Manifest) -> None:
    with closing(connect(Path("file::memory:"))) as database:
        database.execute("CREATE TABLE recipes (id INTEGER PRIMARY KEY)")
        members["default.db"] = database.serialize()
    manifest["tenants"][0]["format"] = 0
    told_truly(members, manifest)


def _with_keys_that_are_none(members: Members, manifest: Manifest) -> None:
    members["keys.json"] = b"{}"
    manifest["members"].append({"member": "keys.json", "bytes": 2, "sha256": "0" * 64})
    told_truly(members, manifest)


def _of_tenant(**fields: object) -> Change:
    return lambda _, manifest: manifest["tenants"][0].update(fields)


def _elsewhere(members: Members, manifest: Manifest) -> None:
    members["../evil.db"] = members.pop("default.db")
    manifest["tenants"][0]["member"] = "../evil.db"


def _swapped(members: Members, _: Manifest) -> None:
    members["audit.jsonl"] = members["audit.jsonl"].replace(b"acme", b"acne")


WRONG_SIZE = "does not have the size its manifest gives"
CHANGES: list[tuple[Change, str]] = [
    (_of_tenant(format=99), "this version reads formats up to"),
    (_of_tenant(tenant="../evil"), "a field of it is missing or invalid"),
    (_of_tenant(bytes=1 << 60), WRONG_SIZE),
    (lambda members, _: members.update({"default.db": bytes(50_000_000)}), WRONG_SIZE),
    (
        lambda members, _: members.update({"../evil.db": b"x"}),
        "its files are not those that its manifest names",
    ),
    (_elsewhere, "a database of it has another tenant's name"),
    (
        lambda _, manifest: manifest["tenants"][0]["counts"].update(observations=7),
        "does not match what the archive's manifest says",
    ),
    (_no_database, "is damaged"), (_of_another_program, "is damaged"),
    (_swapped, "audit.jsonl in it was changed"),
    (
        lambda _, manifest: manifest.update(format=2),
        "it has format 2, from another version of this program",
    ),
    (_with_keys_that_are_none, "The keys in the archive cannot be used"),
]  # fmt: skip


def erased_with_its_tenant(path: Path, _: str) -> None:
    Path(f"{path}.keys").unlink()
    at(path).say("tenants", "erase", "acme", "--yes")


def revoked_by_an_erasure_that_was_killed(path: Path, _: str) -> None:
    key_file(path).revoke_all(TenantId("acme"), at=datetime.now(UTC), by={})


def rotated(path: Path, token: str) -> None:
    at(path).say("keys", "rotate", token.split("_")[1])


def reset(path: Path, _: str) -> None:
    at(path).say("keys", "reset", "--open")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tenant", "change", "opens"),
    [
        ("default", None, True), ("later", None, True),  # which has no database
        ("default", revoke, False), ("default", rotated, False), ("default", reset, False),
        ("acme", erased_with_its_tenant, False),
        ("acme", revoked_by_an_erasure_that_was_killed, False),
    ],
)  # fmt: skip
def test_a_key_comes_back_unless_it_was_changed_since(
    path: Path, tmp_path: Path, tenant: str, change: Callable[[Path, str], None] | None,
    opens: bool,
) -> None:  # fmt: skip
    token = made_key(path, tenant=tenant)
    archive = backed_up(path, tmp_path, "--keys")
    if change is not None:
        change(path, token)
    now = key_file(path).ring() if Path(f"{path}.keys").exists() else None
    if now is not None:
        at(path).say("restore", archive, "--force", "--keys")
        assert key_file(path).ring() == now
        Path(f"{path}.keys").unlink()  # and the audit still tells

    printed = at(path).say("restore", archive, "--force", "--keys")

    back = [token.split("_")[1]] if opens else []
    assert (OPENING.findall(printed), "it is unknown" in printed) == (back, False)
    is_erased = "The tenant acme was erased after this archive was made" in printed
    assert is_erased is (change is erased_with_its_tenant)
    ring = key_file(path).ring().keys
    assert [it for it, key in ring.items() if key.revoked_at is None] == back


@pytest.mark.slow
def test_keys_stay_away_unless_they_are_asked_for(path: Path, tmp_path: Path) -> None:
    token = made_key(path)
    archive, new = backed_up(path, tmp_path / "a.zip", "--keys"), tmp_path / "new.db"

    at(new).say("restore", archive)
    with pytest.raises(KeysLost), serving(new):
        pass
    without = backed_up(path, tmp_path / "b.zip")
    refused = at(new).run("restore", without, "--force", "--keys")
    assert not Path(f"{new}.keys").exists()
    assert (refused.exit_code, "has no keys" in refused.stderr) == (1, True)

    printed = at(new).say("restore", archive, "--keys")
    assert "it is unknown" in printed
    assert f"({token.split('_')[1]}) gives access to the tenant default again" in printed


@pytest.mark.slow
def test_what_had_ended_before_the_backup_has_not_ended_since(path: Path, tmp_path: Path) -> None:
    made_key(path)
    for command in ("keys reset --open", "tenants erase acme --yes", "tenants create acme"):
        at(path).say(*command.split())
    of_acme = made_key(path, tenant="acme").split("_")[1]
    at(path).say("keys", "rotate", of_acme)
    archives = [
        backed_up(path, tmp_path / "all.zip", "--keys"),
        backed_up(path, tmp_path / "one.zip", "--keys", "--tenant", "acme"),
    ]
    Path(f"{path}.keys").unlink()

    for archive in archives:
        printed = at(path).say("restore", archive, "--keys", "--dry-run")
        assert OPENING.findall(printed) == [of_acme]
        assert "was erased after" not in printed
        assert "it is unknown" not in printed


@pytest.mark.slow
def test_keys_that_are_reset_while_an_archive_is_verified_stay_away(
    path: Path, tmp_path: Path
) -> None:
    kept = made_key(path)
    archive = backed_up(path, tmp_path, "--keys")
    at(path).say("keys", "reset", "--open")
    Path(f"{path}.keys").unlink()
    Path(f"{path}.audit").unlink()
    made_key(path)
    place = settings({"MEMORY_DB_PATH": str(path)})

    with restores.prepared(place, archive, with_keys=True) as ready:
        assert [key.id for key in ready.keys.opening] == [kept.split("_")[1]]  # type: ignore[union-attr]
        at(path).say("keys", "reset", "--open")
        with pytest.raises(RestoreRefused, match=r"keys were not: .* changed meanwhile"):
            ready.carry_out(at=datetime.now(UTC), by={}, is_forced=True)

    assert not key_file(path).ring().keys


@pytest.mark.slow
def test_what_was_erased_since_is_told_and_where_nobody_can_know_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    at(path).say("tenants", "create", "acme")
    with serving(path) as service:
        for number in range(3):
            service.save(f"about {number}", project=f"p{number}", session_id=f"s{number}")
        erased(service.http, 3)
        archive = backed_up(path, tmp_path)
        erased(service.http, 1)
    at(path).say("projects", "erase", "p1", "--yes")

    since = "Erased after the archive was made, from default"
    lines = at(path).say("restore", archive, "--dry-run").splitlines()
    first, second = (line for line in lines if line.startswith(since))
    assert "#1" in first + second
    assert "agentops-memory projects erase p1 --tenant default" in first + second

    with closing(connect(path)) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute("UPDATE erasures SET kind = 'nothing'")
    before = all_rows(path)
    refused = at(path).run("restore", archive, "--force")
    told = "Receipts of erasures in the database of default are damaged, so later erasures"
    assert (refused.exit_code, told in refused.output) == (1, True), refused.output
    assert all_rows(path) == before
    forced = at(path).say("restore", archive, "--force", "--without-receipts")
    assert re.findall(r"Receipts of erasures in the database of (\w+)", forced) == ["default"]

    at(path).say("tenants", "erase", "acme", "--yes")
    path.write_bytes(b"no database at all" * 500)
    Path(f"{path}-wal").write_bytes(b"a log of another")
    known = at(path).say("restore", archive, "--dry-run")
    Path(f"{path}.audit").rename(audit := tmp_path / "audit")
    unknown = at(path).say("restore", archive, "--dry-run")
    of_acme = "it is unknown which of these tenants were erased since: acme."
    assert (of_acme in known, of_acme in unknown) == (False, True)
    assert "The database of default cannot be read, so it is unknown what was erased" in known

    audit.rename(f"{path}.audit")
    printed = at(path).say("restore", archive, "--force")
    assert "The tenant acme was erased after this archive was made, and stays erased" in printed
    assert not tenant_file(path, TenantId("acme")).exists()
    assert not Path(f"{path}-wal").exists()  # it was put aside with its database
    assert copies_of(path)[-1].read_bytes().startswith(b"no database")
    assert len(words(path)) == 2
