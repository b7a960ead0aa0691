"""`backup`: one archive of all tenants, made while the service runs, and read over once."""

import json
import os
import shutil
import stat
import threading
import zipfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.engine import files as atomic
from agentops_memory.memory.access import TenantId
from agentops_memory.operations.backup import Scope, make_archive
from agentops_memory.operations.files import keys as key_file
from agentops_memory.operations.files.keys import record
from agentops_memory.settings import settings
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.tenants import tenant_file

from ..support.archives import at, backed_up
from ..support.callers import calling, made_key
from ..support.files import old_texts
from ..support.original import filled
from ..support.process import stored
from ..support.service import Service

NOW = datetime(2026, 11, 22, 4, 20, tzinfo=UTC)


def names(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as file:
        return file.namelist()


@pytest.mark.slow
def test_every_tenant_is_in_it_or_those_that_are_named_with_keys_if_they_are_asked_for(
    service: Service, tmp_path: Path
) -> None:
    path, terminal = service.path, at(service.path)
    acme, other = (made_key(path, tenant=tenant) for tenant in ("acme", "other"))
    (tmp_path / "memory.db.redaction").write_text('{"acme": {"allow": ["x"]}, "other": {}}')
    for token in (acme, other):
        with calling(service, token) as http:
            body = {"session_id": "s", "type": "note", "title": "A", "content": "a", "project": "p"}
            assert http.post("/observations", json=body).status_code == 201
    with closing(connect(path)) as writer:
        writer.execute("BEGIN IMMEDIATE")  # no lock of a writer is needed
        printed = terminal.json("backup", "--to", tmp_path)
    some = backed_up(path, tmp_path / "a.zip", "--tenant", "acme", "--keys")

    every = Path(printed["archive"])
    assert (every.parent, stat.S_IMODE(every.stat().st_mode)) == (tmp_path, 0o600)
    assert names(every) == [
        "audit.jsonl", "redaction.json", "default.db", "tenants/acme.db", "tenants/other.db",
        "manifest.json",
    ]  # fmt: skip
    counts = {part["tenant"]: part["counts"]["observations"] for part in printed["tenants"]}
    assert counts == {"default": 0, "acme": 1, "other": 1}
    assert printed["bytes"] == every.stat().st_size
    assert names(some) == ["audit.jsonl", "keys.json", "tenants/acme.db", "manifest.json"]
    with zipfile.ZipFile(some) as file:
        told = {name: file.read(name).decode() for name in file.namelist() if "db" not in name}
    assert [key["id"] for key in json.loads(told["keys.json"])["keys"]] == [acme.split("_")[1]]
    assert not any("other" in text for text in told.values())


def test_a_file_that_is_there_stays_unless_it_is_forced(service: Service, tmp_path: Path) -> None:
    target, terminal = tmp_path / "a.zip", at(service.path)
    target.write_text("mine")

    refused = terminal.run("backup", "--to", target)

    assert (refused.exit_code, target.read_text()) == (1, "mine")
    assert "already exists" in refused.stderr
    assert "--force" in refused.stderr
    assert terminal.run("backup", "--to", target, "--force").exit_code == 0
    assert "manifest.json" in names(target)


def test_wrong_use_and_too_little_space_are_told_in_a_sentence(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = at(service.path)
    other = tmp_path / "other.db"
    with closing(connect(other)) as database:
        database.execute("CREATE TABLE recipes (id INTEGER PRIMARY KEY)")

    for sentence, *arguments in (
        ("There is no tenant nobody", "--to", tmp_path, "--tenant", "nobody"),
        ("There is no folder", "--to", tmp_path / "none" / "a.zip"),
        ("one of the service's own files", "--to", service.path),
        ("neither a file nor a folder", "--to", "/dev/null"),
        ("There is no database at", "--to", tmp_path, "--db", tmp_path / "none.db"),
        ("of another program", "--to", tmp_path, "--db", other),
    ):
        done = terminal.run("backup", *arguments)
        assert (done.exit_code, sentence in done.stderr) == (1, True), done.stderr
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    done = terminal.run("backup", "--to", tmp_path)
    assert (done.exit_code, "bytes free in" in done.stderr) == (1, True)
    assert not (tmp_path / "none.db").exists()
    assert not list(tmp_path.glob(".agentops*"))


@pytest.mark.slow
def test_a_damaged_database_gives_no_archive(service: Service, tmp_path: Path) -> None:
    at(service.path).say("tenants", "create", "acme")
    acme = tenant_file(service.path, "acme")  # type: ignore[arg-type]
    for damage in (_with_bad_pages(acme), b"no database at all" * 500):
        acme.write_bytes(damage)
        done = at(service.path).run("backup", "--to", tmp_path)

        assert done.exit_code == 1
        assert f"{acme} is damaged" in done.stderr
        assert not list(tmp_path.glob("*.zip"))


def _with_bad_pages(path: Path) -> bytes:
    data = path.read_bytes()
    return data[:4096] + b"\xff" * (len(data) - 4096)


def test_leftovers_of_a_killed_backup_go_and_it_is_told_how_far_this_one_is(
    service: Service, tmp_path: Path
) -> None:
    left, heard = tmp_path / f"{atomic.PREFIX}left{atomic.SUFFIX}", list[tuple[int, int]]()
    left.mkdir()
    (left / "snapshot.db").write_text("half of it")
    with atomic.drafts(tmp_path) as living:
        made = make_archive(
            settings({"MEMORY_DB_PATH": str(service.path)}), tmp_path, Scope(), now=NOW,
            progress=lambda *it: heard.append(it),
        )  # fmt: skip

        assert (left.exists(), living.exists()) == (False, True)
    assert not living.exists()
    assert made.path == tmp_path / "memory-20261122T042000Z.zip"
    assert heard[-1][0] == heard[-1][1]
    assert heard == sorted(heard)


def test_a_database_of_the_original_is_archived_as_it_is(tmp_path: Path) -> None:
    path = filled(tmp_path / "memory.db", rows=20)
    texts = old_texts(path)

    archive = backed_up(path, tmp_path)

    at(tmp_path / "new.db").say("restore", archive)
    assert old_texts(tmp_path / "new.db") == texts
    assert old_texts(path) == texts


@pytest.mark.slow
def test_keys_are_taken_after_every_change_that_the_audit_in_it_tells_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, to = tmp_path / "memory.db", tmp_path / "a.zip"
    at(path).say("save", "Queue", "Orders", "--project", "shop")
    of_old = made_key(path).split("_")[1]
    place = settings({"MEMORY_DB_PATH": str(path)})
    backup = threading.Thread(
        target=lambda: make_archive(place, to, Scope(with_keys=True), now=NOW), daemon=True
    )

    def told_but_not_done(*arguments: Any, **fields: Any) -> None:
        record(*arguments, **fields)
        backup.start()
        backup.join(0.3)

    monkeypatch.setattr(key_file, "record", told_but_not_done)
    at(path).say("keys", "rotate", of_old)
    backup.join()

    with zipfile.ZipFile(to) as file:
        taken, told = json.loads(file.read("keys.json")), file.read("audit.jsonl")
    assert b"key.rotated" in told
    assert taken == json.loads(Path(f"{path}.keys").read_bytes())


@pytest.mark.slow
def test_a_name_that_is_no_utf8_is_one_as_well(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    path = folder / "memory.db"
    at(path).say("save", "Queue", "Orders", "--project", "shop")

    at(path).say("backup", "--to", folder / "a.zip")
    at(path).say("restore", folder / "a.zip", "--force")

    assert len(stored(path)) == 1


@pytest.mark.slow
def test_a_tenant_that_is_erased_meanwhile_is_left_out_and_a_line_half_written_as_well(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    for tenant in ("acme", "zeta"):
        at(path).say("tenants", "create", tenant)
    with Path(f"{path}.audit").open("ab") as file:
        file.write(b'{"at": "2026-')
    place = settings({"MEMORY_DB_PATH": str(path)})

    def erase(_: int, __: int) -> None:
        if tenant_file(path, TenantId("zeta")).exists():
            at(path).say("tenants", "erase", "zeta", "--yes")

    made = make_archive(place, tmp_path / "a.zip", Scope(), now=NOW, progress=erase)

    with zipfile.ZipFile(made.path) as archive:
        assert archive.namelist() == ["audit.jsonl", "tenants/acme.db", "manifest.json"]
        assert archive.read("audit.jsonl").count(b"\n") == 2
        assert archive.read("audit.jsonl").endswith(b"\n")
