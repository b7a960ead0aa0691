"""`restore`: nothing is replaced before all was verified, and nothing revoked comes back."""

import errno
import json
import os
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
from agentops_memory.operations.files.service_lock import service_lock
from agentops_memory.settings.settings import settings
from agentops_memory.sqlite import snapshots as replacing
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.open_files import copies_of, kept_name
from agentops_memory.sqlite.snapshots import RestoreRefused
from agentops_memory.sqlite.tenants import tenant_file

from ..support.archives import all_rows, at, backed_up, repacked, told_truly
from ..support.callers import audit, key_file, made_key, revoke
from ..support.damaged_values import damage, damages, fill
from ..support.damages import CASES
from ..support.erasing import erased
from ..support.process import stored
from ..support.samples import sampled
from ..support.service import serving

Members = dict[str, bytes]
Manifest = dict[str, Any]


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


def words(path: Path) -> set[str]:
    return {content.removeprefix("about ") for content in stored(path)}


def test_it_puts_everything_where_nothing_was(path: Path, tmp_path: Path) -> None:
    (tmp_path / "memory.db.redaction").write_text('{"acme": {"allow": ["x"]}}')
    archive, new = backed_up(path, tmp_path), tmp_path / "deep" / "new.db"
    planned = at(new).json("restore", archive, "--dry-run")
    assert not new.parent.exists()

    printed = at(new).say("restore", archive)

    acme = tenant_file(new, "acme")  # type: ignore[arg-type]
    assert all_rows(new) == all_rows(path)
    assert words(acme) == {"plum"}
    assert [it["counts"]["observations"] for it in planned["tenants"]] == [2, 1]
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


@pytest.mark.heavy
def test_what_is_there_is_replaced_by_force_alone_and_kept(path: Path, tmp_path: Path) -> None:
    archive = backed_up(path, tmp_path)
    save(path, "late")
    path.chmod(0o640)

    refused = at(path).run("restore", archive)
    assert (refused.exit_code, "--force" in refused.stderr) == (1, True)
    assert words(path) == {"apple", "pear", "late"}
    assert "3 observations, changed" in refused.stdout

    for kept in ("memory.db.before-restore", "memory.db.before-restore-2"):
        at(path).say("restore", archive, "--force")
        assert words(path) == {"apple", "pear"}
        assert words(tmp_path / kept) == {"apple", "pear", "late"}
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        save(path, "late")
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


def test_an_archive_of_some_tenants_touches_nothing_of_the_others(
    path: Path, tmp_path: Path
) -> None:
    archive = backed_up(path, tmp_path / "acme.zip", "--tenant", "acme")
    save(path, "late")
    Path(f"{path}.audit").unlink()
    before = path.read_bytes()

    printed = at(path).json("restore", archive, "--force")

    assert [it["tenant"] for it in printed["tenants"]] == ["acme"]
    assert (printed["staying"], printed["put_back"]) == (["default"], [])
    assert path.read_bytes() == before
    assert [line["action"] for line in audit(path)] == ["archive.restored"]


@pytest.mark.heavy
def test_a_link_stays_one_and_what_it_leads_to_is_replaced(path: Path, tmp_path: Path) -> None:
    archive, expected = backed_up(path, tmp_path), all_rows(path)
    save(path, "late")
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "memory.db"
    link.symlink_to(path)

    at(link).say("restore", archive, "--force")

    assert link.is_symlink()
    assert all_rows(path) == expected
    assert words(tmp_path / "memory.db.before-restore") == {"apple", "pear", "late"}


@pytest.mark.heavy
def test_a_database_that_is_damaged_is_replaced_and_kept_as_it_is(
    path: Path, tmp_path: Path
) -> None:
    archive, expected = backed_up(path, tmp_path), all_rows(path)
    path.write_bytes(b"no database at all" * 500)
    Path(f"{path}-wal").write_bytes(b"a log of another")

    printed = at(path).say("restore", archive, "--force")

    assert "unreadable data" in printed
    assert (tmp_path / "memory.db.before-restore").read_bytes().startswith(b"no database")
    assert not Path(f"{path}-wal").exists()
    assert all_rows(path) == expected


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


def test_an_archive_of_the_version_before_counts_the_revisions_that_are_stored(
    path: Path, tmp_path: Path
) -> None:
    def first_ones_are_gone(_: Members, manifest: Manifest) -> None:
        for tenant in manifest["tenants"]:
            tenant["counts"]["revisions"] = 0  # as `doctor --fix` had moved all of them away

    for file in (path, tenant_file(path, TenantId("acme"))):
        with closing(sqlite3.connect(file)) as database:
            assert database.execute("SELECT count(*) FROM revisions").fetchone() == (0,)
            database.execute("PRAGMA user_version = 25")
    archive = repacked(backed_up(path, tmp_path), tmp_path / "before.zip", first_ones_are_gone)

    at(path).say("restore", archive, "--force")

    assert words(path) == {"apple", "pear"}


@pytest.mark.heavy
def test_of_values_that_are_damaged_none_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    fill(path)
    archive, expected = backed_up(path, tmp_path), all_rows(path)
    for it in {(it.table, it.column): it for it in damages()}.values():
        damage(path, it.table, it.column, it.value)

    at(path).say("restore", archive, "--dry-run")
    at(path).say("restore", archive, "--force", "--without-receipts")

    assert all_rows(path) == expected


@pytest.mark.heavy
def test_a_log_that_its_database_has_left_is_not_read_into_the_new_one(
    path: Path, tmp_path: Path
) -> None:
    archive, expected = backed_up(path, tmp_path), all_rows(path)
    with closing(connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("UPDATE memories SET title = 'of another'")
        shutil.copy(f"{path}-wal", tmp_path / "wal")
    path.unlink()
    shutil.move(tmp_path / "wal", f"{path}-wal")

    at(path).say("restore", archive, "--force")

    assert all_rows(path) == expected
    assert (tmp_path / "memory.db.before-restore-lost-wal").exists()


@pytest.mark.heavy
def test_it_can_be_repeated_after_it_was_killed_at_any_step(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, expected = backed_up(path, tmp_path), all_rows(path)
    save(path, "late")
    later = all_rows(path)
    steps = ["kept_name", "_logs_put_aside", "sync"]
    for step in steps:
        with monkeypatch.context() as dying:
            original = getattr(replacing, step)
            dying.setattr(replacing, step, _dying_after(original))
            with pytest.raises(KeyboardInterrupt):
                _restored_here(path, archive)
        assert all_rows(path) in (expected, later), step

    at(path).say("restore", archive, "--force")

    assert all_rows(path) == expected
    assert all_rows(tmp_path / "memory.db.before-restore") == later
    assert [it.name for it in copies_of(path)] == ["memory.db.before-restore"]


def _dying_after(step: Callable[..., Any]) -> Callable[..., Any]:
    def dies(*arguments: Any) -> Any:
        step(*arguments)
        raise KeyboardInterrupt

    return dies


def _restored_here(path: Path, archive: Path) -> None:
    place = settings({"MEMORY_DB_PATH": str(path)})
    with restores.prepared(place, archive) as ready:
        ready.carry_out(at=datetime.now(UTC), by={"user": "tester"}, is_forced=True)


def _within_largest(archive: Path) -> int:
    """A place among the bytes of the largest file in an archive, and of no header."""
    with zipfile.ZipFile(archive) as opened:
        largest = max(opened.infolist(), key=lambda it: it.compress_size)
    return largest.header_offset + largest.compress_size // 2


@pytest.mark.heavy
def test_archives_that_are_not_whole_or_not_ours_change_nothing(path: Path, tmp_path: Path) -> None:
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
        _assert_refused(path, bad, name)
    for name, change in CHANGES.items():
        _assert_refused(path, repacked(archive, bad, change), name)
    _assert_refused(path, repacked(archive, bad, lambda *_: None, packed=zipfile.ZIP_LZMA), "lzma")
    _assert_refused(path, tmp_path / "none.zip", "missing")
    _assert_refused(path, tmp_path, "a folder")

    at(tmp_path / "deep" / "new.db").run("restore", tmp_path / "none.zip")
    assert not (tmp_path / "deep").exists()
    assert all_rows(path) == before
    assert not list(tmp_path.glob(".agentops*"))
    assert not (tmp_path.parent / "evil.db").exists()


REASONS = {
    "cut": "its manifest was changed", "half": "it is incomplete",
    "empty": "it is incomplete", "text": "it is incomplete", "flipped": "it is incomplete",
    "comment": "its manifest was changed",
    "lzma": "is packed in a way this program never uses", "missing": "No such file",
    "a folder": "it is not a file", "_newer": "this version reads formats up to",
    "_unknown": "its files are not those that its manifest names",
    "_elsewhere": "a database of it has another tenant's name",
    "_of_another": "a field of it is missing or invalid",
    "_bomb": "does not have the size its manifest gives",
    "_miscounted": "does not match what the archive's manifest says",
    "_no_database": "is damaged", "_swapped": "audit.jsonl in it was changed",
    "_of_another_program": "is damaged", "_huge": "does not have the size its manifest gives",
    "_of_another_format": "it has format 2, from another version of this program",
    "_with_keys_that_are_none": "The keys in the archive cannot be used",
}  # fmt: skip


def test_a_pipe_is_no_archive(path: Path, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    both_ends = os.open(pipe, os.O_RDWR)  # so that nobody waits for the other one

    refused = at(path).run("restore", pipe, "--force")

    os.close(both_ends)
    assert (refused.exit_code, "it is not a file" in refused.stderr) == (1, True)


def _assert_refused(path: Path, archive: Path, name: str) -> None:
    options = ["--keys"] if "keys" in name else []
    done = at(path).run("restore", archive, "--force", *options)
    assert done.exit_code == 1, (name, done.output)
    assert REASONS[name] in done.stderr, (name, done.stderr)
    assert done.stderr.startswith("agentops-memory: "), name
    assert done.stdout == "", name


def _newer(_: Members, manifest: Manifest) -> None:
    manifest["tenants"][0]["format"] = 99


def _unknown(members: Members, _: Manifest) -> None:
    members["../evil.db"] = b"x"


def _elsewhere(members: Members, manifest: Manifest) -> None:
    members["../evil.db"] = members.pop("default.db")
    manifest["tenants"][0]["member"] = "../evil.db"


def _of_another(_: Members, manifest: Manifest) -> None:
    manifest["tenants"][0]["tenant"] = "../evil"


def _bomb(members: Members, _: Manifest) -> None:
    members["default.db"] = bytes(50_000_000)


def _miscounted(_: Members, manifest: Manifest) -> None:
    manifest["tenants"][0]["counts"]["observations"] = 7


def _no_database(members: Members, manifest: Manifest) -> None:
    members["default.db"] = b"no database" * 999
    told_truly(members, manifest)


def _of_another_program(members: Members, manifest: Manifest) -> None:
    with closing(connect(Path("file::memory:"))) as database:
        database.execute("CREATE TABLE recipes (id INTEGER PRIMARY KEY)")
        members["default.db"] = database.serialize()
    manifest["tenants"][0]["format"] = 0
    told_truly(members, manifest)


def _swapped(members: Members, _: Manifest) -> None:
    members["audit.jsonl"] = members["audit.jsonl"].replace(b"acme", b"acne")


def _huge(_: Members, manifest: Manifest) -> None:
    manifest["tenants"][0]["bytes"] = 1 << 60


def _of_another_format(_: Members, manifest: Manifest) -> None:
    manifest["format"] = 2


def _with_keys_that_are_none(members: Members, manifest: Manifest) -> None:
    members["keys.json"] = b"{}"
    manifest["members"].append({"member": "keys.json", "bytes": 2, "sha256": "0" * 64})
    told_truly(members, manifest)


CHANGES = {
    change.__name__: change
    for change in (
        _newer, _unknown, _elsewhere, _of_another, _bomb, _miscounted, _no_database, _swapped,
        _of_another_program, _huge, _of_another_format, _with_keys_that_are_none,
    )
}  # fmt: skip


@pytest.mark.heavy
def test_keys_that_were_revoked_or_changed_never_come_back(path: Path, tmp_path: Path) -> None:
    kept, gone, rotated, acme = (made_key(path, tenant=it) for it in ("default",) * 3 + ("acme",))
    archive = backed_up(path, tmp_path, "--keys")
    revoke(path, gone)
    at(path).say("keys", "rotate", rotated.split("_")[1])
    now = key_file(path).ring()

    at(path).say("restore", archive, "--force", "--keys")
    assert key_file(path).ring() == now

    Path(f"{path}.keys").unlink()  # and the audit still tells
    printed = at(path).json("restore", archive, "--force", "--keys")

    back = {id_ for id_, key in key_file(path).ring().keys.items() if key.revoked_at is None}
    assert back == {kept.split("_")[1], acme.split("_")[1]}
    assert set(printed["keys"]["staying_away"]) == {gone.split("_")[1], rotated.split("_")[1]}
    assert printed["audit_reaches_back"]

    at(path).say("keys", "reset", "--open")
    assert not at(path).json("restore", archive, "--force", "--keys")["keys"]["opening"]
    assert not key_file(path).ring().keys


@pytest.mark.heavy
def test_keys_stay_as_they_are_unless_they_are_asked_for(path: Path, tmp_path: Path) -> None:
    made_key(path)
    archive = backed_up(path, tmp_path / "a.zip", "--keys")
    Path(f"{path}.keys").unlink()

    at(path).say("restore", archive, "--force")
    without = backed_up(path, tmp_path / "b.zip")
    refused = at(path).run("restore", without, "--force", "--keys")

    assert not Path(f"{path}.keys").exists()
    assert (refused.exit_code, "has no keys" in refused.stderr) == (1, True)


@pytest.mark.heavy
def test_where_nobody_can_know_it_says_so_also_the_second_time(path: Path, tmp_path: Path) -> None:
    token = made_key(path)
    archive, new = backed_up(path, tmp_path, "--keys"), tmp_path / "new.db"
    at(new).say("restore", archive)

    printed = at(new).say("restore", archive, "--keys")

    assert "it is unknown" in printed
    assert f"({token.split('_')[1]}) opens the tenant default again" in printed


@pytest.mark.slow
def test_a_key_of_a_tenant_without_a_database_comes_back_too(path: Path, tmp_path: Path) -> None:
    token = made_key(path, tenant="later")
    archive = backed_up(path, tmp_path, "--keys")

    restored = at(tmp_path / "new.db").json("restore", archive, "--keys")

    assert restored["keys"]["opening"] == [token.split("_")[1]]
    assert list(key_file(tmp_path / "new.db").ring().keys) == [token.split("_")[1]]


@pytest.mark.heavy
def test_what_had_ended_before_the_backup_has_not_ended_since(path: Path, tmp_path: Path) -> None:
    made_key(path)
    at(path).say("keys", "reset", "--open")
    at(path).say("tenants", "erase", "acme", "--yes")
    at(path).say("tenants", "create", "acme")
    of_acme = made_key(path, tenant="acme").split("_")[1]
    at(path).say("keys", "rotate", of_acme)
    of_all = backed_up(path, tmp_path / "all.zip", "--keys")
    of_one = backed_up(path, tmp_path / "one.zip", "--keys", "--tenant", "acme")
    Path(f"{path}.keys").unlink()

    for archive in (of_all, of_one):
        printed = at(path).json("restore", archive, "--keys", "--dry-run")
        assert (printed["keys"]["opening"], printed["left_out"]) == ([of_acme], [])
        assert printed["audit_reaches_back"]


@pytest.mark.heavy
def test_a_key_of_a_tenant_that_was_erased_while_it_was_lost_stays_away(
    path: Path, tmp_path: Path
) -> None:
    made_key(path, tenant="acme")
    archive = backed_up(path, tmp_path, "--keys")
    Path(f"{path}.keys").unlink()
    at(path).say("tenants", "erase", "acme", "--yes")

    printed = at(path).json("restore", archive, "--force", "--keys")

    assert (printed["keys"]["opening"], printed["left_out"]) == ([], ["acme"])


@pytest.mark.slow
def test_a_key_that_an_erasure_revoked_before_it_was_killed_stays_away(
    path: Path, tmp_path: Path
) -> None:
    made_key(path, tenant="acme")
    archive = backed_up(path, tmp_path, "--keys")
    key_file(path).revoke_all(TenantId("acme"), at=datetime.now(UTC), by={})
    Path(f"{path}.keys").unlink()

    printed = at(path).json("restore", archive, "--force", "--keys")

    assert (printed["keys"]["opening"], printed["left_out"]) == ([], [])


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
        with pytest.raises(RestoreRefused, match=r"keys are not: .* changed meanwhile"):
            ready.carry_out(at=datetime.now(UTC), by={}, is_forced=True)

    assert not key_file(path).ring().keys


@pytest.mark.heavy
def test_where_there_are_no_second_names_what_is_missing_is_put_back_all_the_same(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_links(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", without_links)
    archive, new = backed_up(path, tmp_path), tmp_path / "new.db"
    at(new).say("restore", archive)

    assert all_rows(new) == all_rows(path)
    assert audit(new)[0]["action"] == "tenant.created"
    assert at(path).run("backup", "--to", archive).exit_code == 1
    save(new, "late")
    refused = at(new).run("restore", archive, "--force")
    assert (refused.exit_code, "no hard links" in refused.stderr) == (1, True)
    assert words(new) == {"apple", "pear", "late"}


@pytest.mark.heavy
def test_a_tenant_that_was_erased_stays_erased_and_its_file_can_be_taken_from_elsewhere(
    path: Path, tmp_path: Path
) -> None:
    archive = backed_up(path, tmp_path)
    at(path).say("tenants", "create", "other")
    at(path).say("tenants", "erase", "acme", "--yes")
    acme = tenant_file(path, "acme")  # type: ignore[arg-type]

    printed = at(path).say("restore", archive, "--force")
    assert not acme.exists()
    assert "The tenant acme was erased after this archive was made, and stays erased" in printed
    assert "The tenant other stays as it is" in printed

    at(tmp_path / "elsewhere.db").say("restore", archive)
    tenant_file(tmp_path / "elsewhere.db", TenantId("acme")).rename(acme)
    with serving(path, MEMORY_AUTH="none"):
        assert words(acme) == {"plum"}


@pytest.mark.heavy
def test_what_was_erased_since_is_told(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with serving(path) as service:
        for number in range(3):
            service.save(f"about {number}", project=f"p{number}", session_id=f"s{number}")
        erased(service.http, 3)
        archive = backed_up(path, tmp_path)
        erased(service.http, 1)
    at(path).say("projects", "erase", "p1", "--yes")

    lines = at(path).say("restore", archive, "--dry-run").splitlines()

    told = [
        line for line in lines if line.startswith("Erased after the archive was made, from default")
    ]
    assert len(told) == 2
    assert "#1" in str(told)
    assert "agentops-memory projects erase p1 --tenant default" in str(told)


@pytest.mark.heavy
def test_where_nobody_can_know_what_was_erased_since_it_says_so(path: Path, tmp_path: Path) -> None:
    archive = backed_up(path, tmp_path)
    at(path).say("tenants", "erase", "acme", "--yes")
    path.write_bytes(b"no database at all" * 500)
    known = at(path).say("restore", archive, "--dry-run")

    Path(f"{path}.audit").unlink()
    unknown = at(path).say("restore", archive, "--dry-run")

    of_acme = "it is unknown which of these tenants were erased since: acme."
    at(path).say("tenants", "create", "acme")
    there = at(path).say("restore", archive, "--dry-run")
    assert (of_acme in known, of_acme in unknown, of_acme in there) == (False, True, False)
    assert "The database of default cannot be read, so it is unknown what was erased" in known


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize("is_fixed", [False, True])
@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("erasures", "kind", "'nothing'"), ("erasures", "erased_at", "1 << 62"),
        ("erasures", "id", "x'00ff'"), ("erased", "memory_id", "'x'"),
    ],
)  # fmt: skip
def test_over_a_damaged_receipt_it_goes_on_only_without_receipts(
    table: str, column: str, value: str, is_fixed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "memory.db"
    save(path, "apple")
    archive = backed_up(path, tmp_path)
    with serving(path) as service:
        erased(service.http, 1)
    damage(path, table, column, value)
    if is_fixed:
        at(path).run("doctor", "--fix")

    before = all_rows(path)
    refused = at(path).run("restore", archive, "--force")
    assert all_rows(path) == before
    forced = at(path).json("restore", archive, "--force", "--without-receipts")

    told = "Receipts of erasures in the database of default are damaged, so it is unknown all"
    assert (refused.exit_code, told in refused.output) == (1, True)
    assert [it["knows_all_erased_since"] for it in forced["tenants"]] == [False]


def test_a_disk_that_is_small_is_told(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = backed_up(path, tmp_path)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    small = at(path).run("restore", archive, "--force")

    assert (small.exit_code, "bytes free in" in small.stderr) == (1, True)
