"""Confidential values whose keys are lost: all else of their entries stays, and can be changed."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from agentops_memory.operations.files.seal import SealFile

from ..secrets.test_redaction import GITHUB
from ..support.archives import at
from ..support.engines import rows
from ..support.openintent_agents import BATCH, Agent, Json, ok, refused
from ..support.requirements import requirement
from ..support.service import START, serving
from .test_openintent_seal_file import UNOPENED, seal_file, secret_keys
from .test_openintent_sealing import KEYED, VALUE, confidential, seals

CUT = "it is cut short"  # so that no other value can be encrypted


def _exchange(file: Path) -> None:
    file.unlink()
    SealFile(file, lambda: START).rotate(lambda _: None)


LOSSES: dict[str, Callable[[Path], object]] = {
    CUT: lambda file: file.write_bytes(file.read_bytes()[:-40]), "it is another one": _exchange,
}  # fmt: skip
NEW: Json = {"new": "xylem"}
HEALINGS: dict[str, Callable[[Agent, Json], httpx.Response]] = {
    "PATCH": lambda ada, held: ada.patch(held, value=NEW),
    "PUT": lambda ada, _: ada.ask("PUT", KEYED, {"value": NEW}),
    "batch": lambda ada, _: ada.ask(
        "POST", BATCH, {"entries": [ada.body(namespace="batch", value=NEW, version=1)]}
    ),
    "PATCH to public": lambda ada, held: ada.patch(held, value=NEW, sensitivity="public"),
}


NAMESPACES = {"PATCH": "patch", "PUT": "notes", "batch": "batch", "PATCH to public": "public"}


@pytest.mark.slow
@requirement("OI-86")
@pytest.mark.parametrize("loss", LOSSES)
def test_a_new_value_takes_the_place_of_one_that_is_lost(path: Path, loss: str) -> None:
    with serving(path) as service:
        ada = Agent(service.http)
        held = {it: confidential(ada, namespace=NAMESPACES[it]) for it in HEALINGS}
        gone = confidential(ada, key="pear")
        LOSSES[loss](seal_file(service.path))

        for healing, heal in HEALINGS.items():
            answer = heal(ada, held[healing])

            if loss != CUT or healing == "PATCH to public":
                ok(answer)
                assert ok(ada.get(held[healing]))["value"] == NEW
            else:
                assert refused(answer) == UNOPENED
                (entry,) = ada.query(namespace=NAMESPACES[healing], key="apple")["entries"]
                assert entry["version"] == 1
        ok(ada.delete(gone))
        assert ok(ada.ask("DELETE", BATCH, params={"namespace": "batch"}))["deleted"] == 1


@pytest.mark.slow
@requirement("OI-86")
def test_the_commands_say_how_many_values_do_not_open_and_show_no_key(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with serving(path) as service:
        ada = Agent(service.http)
        confidential(ada)
        confidential(ada, key="pear", memory_type="semantic", sensitivity="restricted")
        exported = at(path).run("agents", "export", "ada", "--to", "-")
        assert (json.loads(exported.stdout)["value"], exported.stderr) == (VALUE, "")
        well = at(path).json("doctor")
        key = secret_keys(seal_file(path))[0]
        away, kept = tmp_path / "away", seal_file(path).read_bytes()
        seal_file(path).rename(away)
        confidential(ada, key="new")

        broken = at(path).json("doctor")
        exported = at(path).run("agents", "export", "ada", "--to", "-")

    lost = [json.loads(line) for line in exported.stdout.splitlines()]
    assert [(it["key"], it["value"], it.get("unreadable")) for it in lost] == [
        ("apple", {}, True), ("new", VALUE, None),
    ]  # fmt: skip
    assert exported.exit_code == 0
    assert "1 confidential entry could not be opened" in exported.stderr
    found = {it["code"]: (it["status"], it["sentence"]) for it in broken["findings"]}
    assert found["seals"][0] == "warning"
    assert found["seals"][1].startswith("2 of 3 confidential values cannot be decrypted")
    sound = {it["code"]: it["sentence"] for it in well["findings"]}
    assert sound["seals"] == "Every confidential value can be decrypted (2)."
    assert sound["seal"] == "The file is readable; keys: 1."
    assert key in kept.decode()
    assert key not in repr((well, broken, exported))


@pytest.mark.slow
@requirement("OI-87", "OI-85")
def test_a_scan_reads_what_is_sealed_and_seals_it_again(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    exceptions = tmp_path / "memory.db.redaction"
    exceptions.write_text(json.dumps({"default": {"allow_kinds": ["github-token"]}}))
    with serving(path) as service:
        ada = Agent(service.http)
        entry = confidential(ada, value={"of": GITHUB})
        lost = confidential(ada, key="pear", tags=[GITHUB])
        rows(path, f"UPDATE seals SET key = 'lost' WHERE memory_id = {seals(path)[1][0]}")
        exceptions.unlink()

        assert at(path).run("scan").exit_code == 1
        assert at(path).run("scan", "--redact").exit_code == 0

        clean = ok(ada.get(entry))
        assert clean["value"] == {"of": "[REDACTED:github-token]"}
        (found,) = ada.query(key="pear")["entries"]
        assert found == lost | {
            "tags": ["[REDACTED:github-token]"], "value": {}, "unreadable": True, "version": 2,
            "updated_at": found["updated_at"],
        }  # fmt: skip
    assert len(seals(path)) == 2
