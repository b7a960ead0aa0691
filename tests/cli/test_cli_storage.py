"""`stats --storage` shows what the files are made of, and what the next sweep would remove."""

from pathlib import Path

import pytest

from ..support.callers import calling, made_key
from ..support.service import observation, serving
from ..support.terminal import Terminal


@pytest.mark.sqlite_files
def test_each_tenant_is_shown_and_the_audit_file(path: Path) -> None:
    token = made_key(path, tenant="acme")
    with serving(path) as service, calling(service, token) as acme:
        for number in range(2):
            acme.post("/observations", json=observation(f"A pear {number}.", topic_key="pears"))
        acme.post("/observations", json=observation("A plum."))
        acme.delete("/observations/2")
    terminal = Terminal({"MEMORY_DB_PATH": str(path), "MEMORY_KEEP_REVISIONS": "1"})

    told = terminal.json("stats", "--storage")

    assert [it["tenant"] for it in told["tenants"]] == ["default", "acme"]
    kinds = {it["kind"]: it for it in told["tenants"][1]["kept"]}
    assert kinds["deleted"] | {"bytes": 0} == {
        "kind": "deleted",
        "what": "soft-deleted observations and deleted entries of stores, with their revisions",
        "rows": 3, "bytes": 0, "oldest": "2030-01-01T12:00:00Z", "kept_for": "for ever",
        "next_sweep": 0,
    }  # fmt: skip
    assert (kinds["revisions"]["rows"], kinds["revisions"]["next_sweep"]) == (2, 1 + 1)
    assert kinds["revisions"]["kept_for"] == "newest 1"
    assert kinds["idempotency"]["kept_for"] == "1d"
    audit = Path(f"{path}.audit")
    assert (told["audit"]["rows"], told["audit"]["bytes"]) == (1, audit.stat().st_size)
    assert told["tenants"][1]["database_bytes"] > told["tenants"][1]["index_bytes"] > 0
    people = Terminal({"MEMORY_DB_PATH": str(path), "MEMORY_KEEP_AUDIT": "36h"})
    lines = people.say("stats", "--storage", "--tenant", "default").splitlines()
    assert lines[0].startswith("default: ")
    assert lines[2].split() == ["KIND", "ROWS", "ABOUT", "OLDEST", "KEPT", "NEXT", "SWEEP"]
    assert lines[3].split() == ["deleted", "0", "0", "bytes", "-", "for", "ever", "-"]
    assert lines[-1].split()[-2:] == ["36h", "-"]


@pytest.mark.sqlite_files
def test_what_cannot_be_looked_at_is_said(tmp_path: Path) -> None:
    nowhere = Terminal({"MEMORY_DB_PATH": str(tmp_path / "memory.db")})
    service = Terminal({"MEMORY_URL": "http://127.0.0.1:1"})

    refused = [nowhere.run("stats", "--storage"), service.run("stats", "--storage")]

    assert [it.exit_code for it in refused] == [1, 2]
    assert "There is no database at" in refused[0].stderr
    assert "--storage reads files" in refused[1].stderr
    assert list(tmp_path.iterdir()) == []
