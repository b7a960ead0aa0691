"""`projects` and `tenants` at the terminal, on files that a service has open."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.errors import Refusal
from agentops_memory.memory.access import OPERATOR, Caller, KeyId, TenantId
from agentops_memory.memory.saves import save
from agentops_memory.sqlite import SqliteEngine, TenantsEngine
from agentops_memory.sqlite.tenants import (
    counted,
    make,
    remove,
    tenant_file,
    tenants_of,
)

from ..support.callers import audit, calling, made_key
from ..support.engine import draft
from ..support.engines import is_postgresql
from ..support.erasing import remains
from ..support.files import assert_index_is_whole
from ..support.samples import for_each
from ..support.service import START, Service, observation, serving
from ..support.terminal import Terminal

ACME = TenantId("acme")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Service]:
    """A service with three memories in two projects."""
    with serving(tmp_path / "memory.db") as service:
        service.save("apple", project="a", topic_key="k", session_id="s1")
        service.save("quince", project="a", session_id="s1")
        service.save("pear", project="b", topic_key="k", session_id="s2")
        yield service


def at(path: Path) -> Terminal:
    return Terminal({"MEMORY_DB_PATH": str(path)})


def cli(service: Service, *arguments: str) -> Any:
    """What a command prints as JSON."""
    done = at(service.path).run(*arguments, "--json")
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_what_is_changed_at_the_terminal_is_seen_by_a_running_service(shop: Service) -> None:
    renamed = cli(shop, "projects", "rename", " A ", "NEW")
    assert renamed["observations"] == 2
    assert shop.http.get("/stats").json()["projects"] == ["b", "new"]
    would = cli(shop, "projects", "merge", "new", "b", "--dry-run")
    assert shop.http.get("/stats").json()["projects"] == ["b", "new"]
    merged = cli(shop, "projects", "merge", "new", "b", "--yes")
    assert merged == would | {"dry_run": False}
    assert merged["same_keys"] == 1
    listed = cli(shop, "projects", "list")
    assert [(it["project"], it["observations"], it["sessions"]) for it in listed] == [("b", 2, 2)]
    found = shop.http.get("/search?q=quince&project=b").json()
    assert [hit["title"] for hit in found] == ["quince"]
    assert_index_is_whole(shop.path)
    lines = audit(shop.path)
    assert [line["action"] for line in lines] == ["project.renamed", "project.merged"]
    assert [line["by"]["uid"] for line in lines] == [os.getuid()] * 2  # type: ignore[index]


def test_an_erasure_at_the_terminal_ends_when_the_bytes_are_gone(shop: Service) -> None:
    would = cli(shop, "projects", "erase", "a", "--dry-run")
    receipt = cli(shop, "projects", "erase", "a", "--yes")

    assert (would["observations"], would["sessions"]) == (2, 1)
    assert (receipt["observations"], receipt["sessions"]) == (2, 1)
    assert bool(receipt["bytes_gone_at"]) is not is_postgresql()  # where it cannot be told
    assert remains(shop.path.parent, "apple", "quince") == set()
    assert shop.http.get("/stats").json()["projects"] == ["b"]
    assert shop.http.get(f"/erasures/{receipt['id']}").json()["project"] == "a"


@for_each(
    "arguments, code, said",
    [
        (("projects", "erase", "nothing", "--yes"), 1, "agentops-memory: No such project.\n"),
        (("projects", "erase", "a"), 2, "add --yes"),
        (("projects", "list", "--tenant", "nobody"), 1, "There is no tenant nobody"),
        (("tenants", "erase", "default", "--yes"), 1, "service's own database"),
        (("tenants", "erase", "nobody", "--yes"), 1, "There is no tenant nobody."),
    ],
)
def test_what_cannot_be_done_at_the_terminal_is_a_sentence(
    shop: Service, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = at(shop.path).run(*arguments)

    assert done.exit_code == code
    assert said in done.stderr
    assert shop.http.get("/stats").json()["total_observations"] == 3


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_tenant_is_made_listed_exported_and_erased_while_a_service_has_it_open(
    shop: Service, tmp_path: Path
) -> None:
    path, file, pipe = shop.path, tmp_path / "acme.json", tmp_path / "pipe"
    terminal = at(path)
    created = [terminal.run("tenants", "create", "acme").exit_code for _ in range(2)]
    assert created == [0, 1]
    token = made_key(path, tenant="acme")
    with calling(shop, token) as client:
        client.post("/observations", json=observation("apple")).raise_for_status()
        terminal.say("export", file, "--tenant", "acme")
        exported = client.get("/export").json()["observations"]
        assert json.loads(file.read_text())["observations"] == exported
        assert file.stat().st_mode & 0o777 == 0o600
        os.mkfifo(pipe)
        with ThreadPoolExecutor() as pool:
            read = pool.submit(pipe.read_text)
            terminal.say("export", pipe, "--tenant", "acme")
            assert json.loads(read.result())["observations"] == exported
        assert pipe.is_fifo()
        listed = {it["tenant"]: it for it in cli(shop, "tenants", "list")}
        assert [listed["acme"][it] for it in ("observations", "sessions")] == [1, 1]
        assert [key["name"] for key in listed["acme"]["keys"]] == ["admin of acme"]
        assert listed["default"]["observations"] == 3
        erased = cli(shop, "tenants", "erase", "acme", "--yes")
        assert client.get("/stats").status_code == 401
    assert erased["keys"] == listed["acme"]["keys"]
    assert list((tmp_path / "memory.db.tenants").iterdir()) == []
    with calling(shop, made_key(path, tenant="acme")) as client:
        assert client.get("/stats").json()["total_observations"] == 0
    assert [line["action"] for line in audit(path)] == [
        "tenant.created", "key.created", "keys.revoked", "tenant.erased", "key.created",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_tenant_that_is_a_link_or_whose_keys_stay_is_not_erased(
    shop: Service, tmp_path: Path
) -> None:
    made_key(shop.path, tenant="acme")
    make(shop.path, ACME, START)
    Path(f"{shop.path}.keys.new").mkdir()  # where the new file would be written

    done = at(shop.path).run("tenants", "erase", "acme", "--yes")

    assert done.exit_code == 1
    assert tenants_of(shop.path) == ["default", "acme"]

    path, elsewhere = tmp_path / "other.db", tmp_path / "elsewhere.db"
    make(path, ACME, START)
    tenant_file(path, ACME).rename(elsewhere)
    tenant_file(path, ACME).symlink_to(elsewhere)
    done = at(path).run("tenants", "erase", "acme", "--yes")
    assert (done.exit_code, "is a symbolic link" in done.stderr) == (1, True)
    assert elsewhere.exists()
    assert tenant_file(path, ACME).is_symlink()


@pytest.mark.slow
async def test_what_is_saved_into_a_database_that_is_being_removed_is_refused(path: Path) -> None:
    caller = Caller(tenant=ACME, key=KeyId("a key"))

    async with TenantsEngine.opened(
        path, partial(SqliteEngine.opened, clock=lambda: START), has_key=lambda _: True
    ) as engine:
        await engine.write(caller, save, draft("apple"), timedelta())
        file = tenant_file(path, ACME)
        async with engine.used(caller) as open_before:  # a request under way
            remove(file)
            with pytest.raises(Refusal):
                await open_before.write(caller, save, draft("pear"), timedelta())
        assert engine.callers() == [OPERATOR]  # no sweep makes it anew
        assert not file.exists()
        await engine.write(caller, save, draft("quince"), timedelta())
        assert counted(file).memories == 1


@pytest.mark.sqlite_files
def test_a_list_says_which_tenants_database_cannot_be_read_and_it_can_be_removed(
    shop: Service,
) -> None:
    file = tenant_file(shop.path, ACME)
    file.parent.mkdir()
    file.write_text("no database" * 1000)

    done = at(shop.path).run("tenants", "list")

    assert done.exit_code == 1
    assert done.stderr == "agentops-memory: the database of the tenant acme cannot be read.\n"
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["TENANT", "default", "acme"]
    assert counted(file).memories is None
    assert remove(file) == [file]
    assert not file.exists()


@pytest.mark.sqlite_files
def test_an_export_is_not_written_over_what_the_service_lives_on(shop: Service) -> None:
    folder = shop.path.parent
    before = shop.path.read_bytes()
    (folder / "link").symlink_to(shop.path)
    for name in ("memory.db", "memory.db-wal", "memory.db.keys", "link", "memory.db.tenants/x"):
        done = at(shop.path).run("export", folder / name, "--force")
        assert done.exit_code == 1
        assert "one of the service's own files" in done.stderr, name
    assert shop.path.read_bytes() == before
    assert not (folder / "memory.db.keys").exists()


@pytest.mark.sqlite_files
def test_a_tenant_that_cannot_be_audited_is_not_made(path: Path) -> None:
    Path(f"{path}.audit").mkdir()

    assert at(path).run("tenants", "create", "acme").exit_code == 1
    assert not tenant_file(path, ACME).exists()
