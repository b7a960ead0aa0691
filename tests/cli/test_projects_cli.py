"""`projects` and `tenants` at the terminal, on files that a service has open."""

import json
import os
import shlex
import subprocess
import sys
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
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.sqlite.tenants import (
    TenantsEngine,
    counted,
    make,
    remove,
    tenant_file,
    tenants_of,
)

from ..support.callers import audit, calling, made_key
from ..support.database import assert_index_is_whole
from ..support.engine import draft
from ..support.engines import command, is_postgresql
from ..support.erasing import remains
from ..support.process import environment, run
from ..support.samples import for_each
from ..support.service import START, Service, observation, serving

ACME = TenantId("acme")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Service]:
    """A service with three memories in two projects."""
    with serving(tmp_path / "memory.db") as service:
        service.save("apple", project="a", topic_key="k", session_id="s1")
        service.save("quince", project="a", session_id="s1")
        service.save("pear", project="b", topic_key="k", session_id="s2")
        yield service


def cli(service: Service, *arguments: str) -> Any:
    """What a command prints as JSON."""
    done = run(*arguments, "--db", str(service.path), "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


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
    done = run(*arguments, "--db", str(shop.path))

    assert done.returncode == code
    assert said in done.stderr
    assert shop.http.get("/stats").json()["total_observations"] == 3


@pytest.mark.sqlite_files
def test_a_tenant_is_made_listed_exported_and_erased_while_a_service_has_it_open(
    shop: Service, tmp_path: Path
) -> None:
    path, file = shop.path, tmp_path / "acme.json"
    created = ("tenants", "create", "acme", "--db", str(path))
    assert run(*created).returncode == 0
    assert run(*created).returncode == 1
    token = made_key(path, tenant="acme")
    with calling(shop, token) as client:
        client.post("/observations", json=observation("apple")).raise_for_status()
        done = run("tenants", "export", "acme", "--to", str(file), "--db", str(path))
        assert done.returncode == 0, done.stderr
        assert (
            json.loads(file.read_text())["observations"]
            == (client.get("/export").json()["observations"])
        )
        assert file.stat().st_mode & 0o777 == 0o600
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
def test_a_tenant_whose_keys_cannot_be_revoked_is_not_erased(shop: Service) -> None:
    made_key(shop.path, tenant="acme")
    make(shop.path, ACME, START)
    Path(f"{shop.path}.keys.new").mkdir()  # where the new file would be written

    done = run("tenants", "erase", "acme", "--yes", "--db", str(shop.path))

    assert done.returncode == 1
    assert "admin of acme" in done.stderr
    assert "nothing was changed" in done.stderr
    assert tenants_of(shop.path) == ["default", "acme"]


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


def test_a_tenants_database_that_cannot_be_read_can_be_removed(tmp_path: Path) -> None:
    file = tmp_path / "broken.db"
    file.write_text("no database" * 1000)

    assert counted(file).memories is None
    assert remove(file) == [file]
    assert not file.exists()


@pytest.mark.sqlite_files
def test_a_list_says_which_tenants_database_cannot_be_read(shop: Service) -> None:
    file = tenant_file(shop.path, ACME)
    file.parent.mkdir()
    file.write_text("no database" * 1000)

    done = run("tenants", "list", "--db", str(shop.path))

    assert done.returncode == 1
    assert done.stderr == "agentops-memory: the database of the tenant acme cannot be read.\n"
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["TENANT", "default", "acme"]


@pytest.mark.sqlite_files
def test_an_export_is_not_written_over_what_the_service_lives_on(shop: Service) -> None:
    folder = shop.path.parent
    before = shop.path.read_bytes()
    (folder / "link").symlink_to(shop.path)
    for name in ("memory.db", "memory.db-wal", "memory.db.keys", "link", "memory.db.tenants/x"):
        done = run(
            "tenants", "export", "default", "--db", str(shop.path), "--to", str(folder / name)
        )
        assert done.returncode == 1
        assert "one of the service's own files" in done.stderr, name
    assert shop.path.read_bytes() == before
    assert not (folder / "memory.db.keys").exists()


def test_an_export_goes_through_a_pipe_that_is_there(shop: Service) -> None:
    pipe = shop.path.parent / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        run("tenants", "export", "default", "--db", str(shop.path), "--to", str(pipe))
        assert len(json.loads(read.result())["observations"]) == 3
    assert pipe.is_fifo()


@pytest.mark.heavy
def test_a_tenant_that_was_erased_does_not_come_back_by_itself(path: Path) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="50ms") as service:
        with calling(service, made_key(path, tenant="acme")) as client:
            for number in range(20):
                saved = client.post("/observations", json=observation(f"apple {number}")).json()
                client.delete(f"/observations/{saved['id']}?hard=true")
        assert run("tenants", "erase", "acme", "--db", str(path), "--yes").returncode == 0
        service.http.get("/health")
    assert not tenant_file(path, ACME).exists()
    assert run("tenants", "create", "acme", "--db", str(path)).returncode == 0


@pytest.mark.sqlite_files
def test_a_tenant_that_is_a_link_is_not_erased(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "memory.db", tmp_path / "elsewhere.db"
    make(path, ACME, START)
    tenant_file(path, ACME).rename(elsewhere)
    tenant_file(path, ACME).symlink_to(elsewhere)

    done = run("tenants", "erase", "acme", "--db", str(path), "--yes")

    assert done.returncode == 1
    assert "is a symbolic link" in done.stderr
    assert elsewhere.exists()
    assert tenant_file(path, ACME).is_symlink()


@pytest.mark.sqlite_files
def test_a_tenant_that_cannot_be_audited_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "memory.db.audit").mkdir()

    done = run("tenants", "create", "acme", "--db", str(tmp_path / "memory.db"))

    assert done.returncode == 1
    assert not tenant_file(tmp_path / "memory.db", ACME).exists()


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize("words", ["projects list", "tenants list", "index", "scan"])
def test_output_that_cannot_be_written_is_a_sentence(shop: Service, words: str) -> None:
    done = in_shell(shop, words, "> /dev/full")

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr


@pytest.mark.heavy
def test_nobody_can_be_asked_without_a_standard_input(shop: Service) -> None:
    done = in_shell(shop, "projects erase a", "<&-")

    assert done.returncode == 2
    assert "add --yes" in done.stderr


def in_shell(shop: Service, words: str, redirected: str) -> "subprocess.CompletedProcess[str]":
    """What became of the program on the shop's file, with an output or input from a shell."""
    program = [sys.executable, "-m", "agentops_memory", *words.split(), "--db", str(shop.path)]
    given, variables = command(program, {})
    line = f"{shlex.join(given)} {redirected}"
    return subprocess.run(
        ["sh", "-c", line], env=environment(variables), capture_output=True, text=True, check=False
    )
