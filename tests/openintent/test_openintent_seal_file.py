"""The keys of confidential values: made once, renewed, lost, put back, and in backups."""

import json
import stat
import threading
import zipfile
from pathlib import Path

import pytest

from agentops_memory.errors import StartRefused
from agentops_memory.operations.files.seal import SealFile, SealFileRefused, SealKey

from ..support.archives import at, backed_up
from ..support.callers import audit
from ..support.openintent_agents import Agent, ok, refused
from ..support.requirements import requirement
from ..support.service import START, serving
from ..telemetry.test_logs import Lines, lines
from .test_openintent_sealing import VALUE, WORD, confidential, seals

__all__ = ["lines"]

UNOPENED = (503, "UNAVAILABLE")


def seal_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.seal")


def secret_keys(file: Path) -> list[str]:
    return [it["key"] for it in json.loads(file.read_text())["keys"]]


@requirement("OI-86")
def test_of_many_who_need_the_first_key_at_once_one_makes_it(tmp_path: Path) -> None:
    file, start = tmp_path / "deep.seal", threading.Barrier(8)
    sealed, owns = [], [SealFile(file, lambda: START) for _ in range(8)]

    def seal(own: SealFile) -> None:
        start.wait()
        sealed.append(own.seal("text", b"here"))

    threads = [threading.Thread(target=seal, args=(own,)) for own in owns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(secret_keys(file)) == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {own.opened(it, b"here") for own in owns for it in sealed} == {"text"}
    assert {own.opened(it, b"there") for own in owns for it in sealed} == {None}
    assert len({it.nonce for it in sealed}) == 8


@requirement("OI-86")
def test_keys_are_renewed_while_the_service_runs(path: Path) -> None:
    with serving(path) as service:
        ada = Agent(service.http)
        old, other = confidential(ada), confidential(ada, key="pear")

        printed = at(path).run("seal", "rotate", "--json")

        made = json.loads(printed.stdout)
        assert made["keys"] == 2
        changed = ok(ada.patch(old, value=VALUE | {"n": 1}))
        confidential(ada, key="new")
        assert [key == made["key"] for _, key, *_ in seals(path)] == [True, False, True]
        assert ok(ada.get(changed))["value"] == VALUE | {"n": 1}
        assert ok(ada.get(other))["value"] == VALUE
    line = audit(path)[-1]
    assert (line["action"], line["key"]) == ("seal.rotated", made["key"])
    assert not any(key in printed.output for key in secret_keys(seal_file(path)))
    assert stat.S_IMODE(seal_file(path).stat().st_mode) == 0o600


@requirement("OI-86")
def test_no_key_is_made_that_is_not_audited_and_no_line_is_written_of_none(path: Path) -> None:
    at(path).say("seal", "rotate")
    before = seal_file(path).read_bytes()
    log = path.with_name("memory.db.audit")
    kept = log.read_bytes()
    log.unlink()
    log.mkdir()
    assert at(path).run("seal", "rotate").exit_code != 0
    assert seal_file(path).read_bytes() == before
    log.rmdir()
    log.write_bytes(kept)

    seal_file(path).write_text("{")
    refusal = at(path).run("seal", "rotate")

    assert refusal.exit_code != 0
    assert "it is damaged" in refusal.stderr
    assert (log.read_bytes(), seal_file(path).read_text()) == (kept, "{")


@requirement("OI-86")
def test_a_start_needs_the_file_that_was_named_and_no_other(tmp_path: Path, lines: Lines) -> None:
    path, named = tmp_path / "memory.db", tmp_path / "secrets" / "seal"
    with (
        pytest.raises(StartRefused, match="There is no seal file"),
        serving(path, MEMORY_SEAL_FILE=str(named)),
    ):
        pass
    at(path).say("seal", "rotate", "--seal-file", named)
    with serving(path, MEMORY_SEAL_FILE=str(named)) as service:
        entry = confidential(Agent(service.http))
    assert not seal_file(path).exists()
    assert not [line for line in lines.all() if "confidential" in line["message"]]

    named.write_text("[]")

    with serving(path, MEMORY_SEAL_FILE=str(named)) as service:
        ada = Agent(service.http)
        assert refused(ada.get(entry)) == UNOPENED
        answer = ada.post(key="pear", value=VALUE, sensitivity="confidential")
        assert refused(answer) == UNOPENED
        assert str(named) not in answer.text
        ada.make(key="plain")
        assert ada.found() == ["plain", "apple"]
    (line,) = (line for line in lines.all() if "confidential" in line["message"])
    assert (line["level"], str(named) in line["reason"]) == ("WARNING", True)


@pytest.mark.slow
@pytest.mark.representative(2)
@requirement("OI-86", "OI-85")
@pytest.mark.parametrize("option", [(), ("--without-seal",)])
@pytest.mark.parametrize("is_used", [False, True])
def test_what_a_backup_brings_back_opens_with_its_keys(
    tmp_path: Path, option: tuple[str, ...], is_used: bool
) -> None:
    path, new = tmp_path / "a" / "memory.db", tmp_path / "b" / "memory.db"
    with serving(path) as service:
        first = confidential(Agent(service.http))
        at(path).say("seal", "rotate")
        second = confidential(Agent(service.http), key="pear")
        archive = backed_up(path, tmp_path, *option)
    own_keys = []
    if is_used:
        with serving(new) as service:
            confidential(Agent(service.http), key="own")
        own_keys = secret_keys(seal_file(new))
    with zipfile.ZipFile(archive) as file:
        packed = {name: file.read(name) for name in file.namelist()}
    held = [
        name
        for name in packed
        for key in secret_keys(seal_file(path))
        if key.encode() in packed[name]
    ]
    assert held == ([] if option else ["seal.json"] * 2)
    assert not any(WORD.encode() in content for content in packed.values())

    at(new).say("restore", archive, *(["--force"] if is_used else []))

    with serving(new) as service:
        ada = Agent(service.http)
        values = [ada.get(entry) for entry in (first, second)]
        if option:
            assert {refused(it) for it in values} == {UNOPENED}
        else:
            assert [ok(it)["value"] for it in values] == [VALUE, VALUE]
        assert ok(ada.get(confidential(ada, key="after")))["value"] == VALUE
    left = secret_keys(seal_file(new))
    assert left[-1:] == own_keys or not is_used  # what encrypts stays the same
    assert len(left) == (0 if option else 2) + bool(is_used or option)


@pytest.mark.slow
@requirement("OI-86")
def test_a_file_takes_no_more_keys_than_it_is_read_with(tmp_path: Path) -> None:
    file = SealFile(tmp_path / "seal", lambda: START)
    file.rotate(lambda _: None)
    before = (tmp_path / "seal").read_bytes()
    many = {f"{number:016x}": bytes(32) for number in range(9_000)}
    with pytest.raises(SealFileRefused, match="no more keys"):
        file.add({id_: SealKey(key, "2030-01-01T00:00:00Z") for id_, key in many.items()})
    assert (tmp_path / "seal").read_bytes() == before
