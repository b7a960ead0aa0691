"""Exports and imports at the terminal: whole or not at all, over HTTP and on the file."""

import asyncio
import io
import json
import os
import re
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.cli.output import HINTS
from agentops_memory.errors import Denied
from agentops_memory.local import opened_here
from agentops_memory.memory.access import OPERATOR, Caller
from agentops_memory.settings import settings
from agentops_memory.telemetry import Telemetry
from agentops_memory_client.contract.models import Denied as NotAllowed

from ..support.engines import is_postgresql
from ..support.service import Service, lasting_with, observation
from ..support.terminal import Terminal

Row = dict[str, Any]

UID = "01900000-0000-7000-8000-0000000000{:02}"
AT, LATER = "2029-05-06T07:08:09Z", "2029-05-07T07:08:09Z"


@pytest.fixture(params=["over HTTP", "on the file"])
def terminal(request: pytest.FixtureRequest, service: Service) -> Terminal:
    if request.param == "over HTTP":
        return Terminal({"MEMORY_URL": service.url})
    return Terminal({"MEMORY_DB_PATH": str(service.path)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the user's own files are; nothing else may be left in it."""
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


def written(file: Path, document: object) -> Path:
    file.write_text(json.dumps(document), "utf-8")
    return file


def row(number: int, content: str, **fields: object) -> Row:
    dates = {"created_at": AT, "updated_at": AT, "last_seen_at": AT}
    return observation(content, uid=UID.format(number), **dates | fields)


def stored(service: Service) -> Row:
    document: Row = service.http.get("/export").json()
    return document


def test_an_export_is_not_printed_on_a_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentops_memory.cli.output.is_terminal", lambda _: True)

    assert terminal.run("export").exit_code == 2


@pytest.mark.slow
def test_an_export_is_a_whole_file_that_is_not_written_over(
    terminal: Terminal, service: Service, folder: Path
) -> None:
    service.save("Queues hold.", tags=["é"])
    service.save("Elsewhere.", project="other")
    file = folder / "all.json"

    assert terminal.say("export", file) == ""
    assert json.loads(file.read_text("utf-8"))["observations"] == stored(service)["observations"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(terminal.say("export")).keys() == stored(service).keys()
    part = terminal.run("export", "--project", "Other")
    assert [it["project"] for it in json.loads(part.stdout)["observations"]] == ["other"]
    assert part.stderr == "Only the project Other is exported.\n"

    file.write_text("mine", "utf-8")
    refused = terminal.run("export", file)
    assert (refused.exit_code, file.read_text("utf-8")) == (1, "mine")
    assert HINTS["FileThere"] in refused.stderr
    terminal.say("export", file, "--force")
    assert json.loads(file.read_text("utf-8")).keys() == stored(service).keys()
    assert list(folder.iterdir()) == [file]
    for wrong in (folder, folder / "no" / "where"):
        assert terminal.run("export", wrong, "--force").exit_code == 1


@pytest.mark.slow
def test_what_is_exported_is_imported_once_from_a_file_a_pipe_or_standard_input(
    terminal: Terminal, service: Service, folder: Path
) -> None:
    service.save("Queues hold.", tags=["a"])
    file, pipe = folder / "all.json", folder / "pipe"
    terminal.say("export", file)
    service.http.delete("/projects/demo?hard=true")

    first, again = (terminal.say("import", file) for _ in range(2))

    assert first == "Imported 1 observation and 1 session.\n"
    assert again == "Imported 0 observations and 0 sessions.\n"
    assert terminal.json("import", file) == {"imported_sessions": 0, "imported_observations": 0}
    assert list(folder.iterdir()) == [file]
    document = json.dumps({"observations": [row(1, "Piped.")]})
    assert terminal.say("import", "-", given=document) == "Imported 1 observation and 0 sessions.\n"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_text, args=(document, "utf-8"))
    writing.start()
    assert terminal.say("import", pipe) == "Imported 0 observations and 0 sessions.\n"
    writing.join()


@pytest.mark.slow
def test_a_dry_run_tells_each_conflict_and_changes_nothing(
    terminal: Terminal, service: Service, folder: Path
) -> None:
    kept = [row(1, "Ours.", topic_key="k"), row(2, "Theirs.", topic_key="l"), row(3, "Same.")]
    service.http.post("/import", json={"observations": [*kept, row(4, "Deleted.")]})
    service.http.delete("/observations/4")
    service.http.patch("/observations/1", json={"title": "Now\x1b[2J"})
    before = stored(service)
    rows = [
        kept[0], row(5, "Newer.", topic_key="l", updated_at=LATER), row(6, "Older.", topic_key="l"),
        kept[2], row(4, "Deleted."), row(7, "New."), row(7, "Twice."),
    ]  # fmt: skip
    file = written(folder / "rows.json", {"observations": rows, "sessions": []})

    told = terminal.say("import", file, "--dry-run")
    plan = terminal.json("import", file, "--dry-run")

    assert re.sub(" +", " ", told) == (
        " NEW BACK SAME CONFLICTING\nsessions 0 0 0\nobservations 1 1 1 4\n"
        "observations[0] Ours. (demo): conflicts with #1 (changed); the stored one is kept\n"
        "observations[1] Newer. (demo): conflicts with #2 (topic key); the imported one is kept\n"
        "observations[2] Older. (demo): conflicts with #2 (topic key); the stored one is kept\n"
        "observations[6] Twice. (demo): conflicts with an earlier observation of the document "
        "(changed); the stored one is kept\n"
    )
    assert plan == service.http.post(
        "/import?dry_run=true", content=file.read_bytes()
    ).json()  # fmt: skip
    assert stored(service)["observations"] == before["observations"]


@pytest.mark.slow
def test_a_document_that_is_refused_is_named_and_stored_in_no_part(
    terminal: Terminal, service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = json.dumps({"observations": [row(1, "x"), row(2, "y") | {"uid": "me"}]})
    for content, sentence in (
        (b'{"version": "1", "results": []}', "this one has version, results."),
        (b'{"a": 1}', "as `agentops-memory export` writes; this one has a."),
        (b" \n", "is empty."), (b"\xff" * 99, "invalid JSON"),
        (half.encode(), "observations[1]"),
    ):  # fmt: skip
        file = folder / "document"
        file.write_bytes(content)
        for arguments in (("import", file), ("import", file, "--dry-run")):
            done = terminal.run(*arguments)
            assert (done.exit_code, done.stdout) == (1, ""), content
            assert re.fullmatch(r"agentops-memory: .*\n", done.stderr), done.stderr
            assert sentence in done.stderr, content
    for wrong in (folder, folder / "none.json"):
        assert terminal.run("import", wrong).exit_code == 1
    assert (stored(service)["sessions"], stored(service)["observations"]) == ([], [])
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # as it is for all but root
    unreadable = terminal.run("import", folder)
    assert (unreadable.exit_code, unreadable.stdout) == (1, "")
    assert unreadable.stderr.startswith(f"agentops-memory: {folder} cannot be read: ")


@pytest.mark.slow
def test_a_dry_run_needs_no_database_and_makes_none(folder: Path) -> None:
    terminal = Terminal({"MEMORY_DB_PATH": str(folder / "none" / "memory.db")})
    rows = [row(1, "New.", topic_key="k"), row(2, "Newer.", topic_key="k", updated_at=LATER)]
    document = json.dumps({"sessions": [{"id": "s", "project": "p"}], "observations": rows})

    plan = terminal.json("import", "-", "--dry-run", given=document)
    refused = terminal.run("import", "-", "--dry-run", given=b'{"observations": [1]}')
    no_tenant = terminal.run("import", "-", "--dry-run", "--tenant", "acme", given=b"{}")

    assert (plan["new_sessions"], plan["new_observations"]) == (1, 1)
    assert [it["place"] for it in plan["conflicts"]] == [1]
    assert (refused.exit_code, "observations[0] must be an object" in refused.stderr) == (1, True)
    assert (no_tenant.exit_code, HINTS["NoTenant"] in no_tenant.stderr) == (1, True)
    assert list(folder.iterdir()) == []
    if not is_postgresql():
        file = folder / "memory.db"  # with nothing in it, which stays so
        file.touch()
        again = terminal.json("import", "-", "--dry-run", "--db", file, given=document)
        assert again == plan
        assert [(it.name, it.stat().st_size) for it in folder.iterdir()] == [("memory.db", 0)]


@pytest.mark.sqlite_files
def test_an_import_that_is_interrupted_ends_as_shells_have_it(folder: Path) -> None:
    class Interrupted(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, _: Any) -> int:
            raise KeyboardInterrupt

    done = Terminal({"MEMORY_DB_PATH": str(folder / "memory.db")}).run(
        "import", "-", given=io.BufferedReader(Interrupted())
    )

    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == "\nagentops-memory: Stopped.\n"
    assert list(folder.iterdir()) == []


large = lasting_with(MEMORY_MAX_UPLOAD="10KiB")


def test_a_document_over_the_limit_of_the_service_is_imported_on_its_file(
    large: Service, folder: Path
) -> None:
    rows = {"observations": [row(number, "word " * 500) for number in range(9)]}
    file = written(folder / "large.json", rows)

    refused = Terminal({"MEMORY_URL": large.url}).run("import", file)
    done = Terminal({"MEMORY_DB_PATH": str(large.path)}).say("import", file)

    assert (refused.exit_code, HINTS["TooLarge"] in refused.stderr) == (1, True)
    assert done == "Imported 9 observations and 0 sessions.\n"


async def test_progress_here_is_told_until_all_is_done(folder: Path) -> None:
    rows = [observation(f"Row {number} " * 99, created_at=AT) for number in range(99)]
    file = written(folder / "rows.json", {"observations": rows})
    size, told = file.stat().st_size, list[tuple[int, int | None]]()

    def tell(done: int, of: int | None) -> None:
        told.append((done, of))

    place = settings({"MEMORY_DB_PATH": str(folder / "memory.db")})
    async with opened_here(place, Telemetry.started(None)) as here:
        plan = await here.plan_import(file, progress=tell)
        assert (plan.new_observations, told[-1], len(told) > 1) == (99, (size, size), True)
        imported = await here.import_from(file, progress=tell)
        assert (imported.imported_observations, told[-1]) == (99, (size, size))
        assert all(0 < done <= size and of == size for done, of in told)
        told.clear()
        exported = b"".join([piece async for piece in here.export("demo", progress=tell)])
    assert told[-1] == (len(exported), None)
    assert len(json.loads(exported)["observations"]) == 99


def test_an_export_ends_with_the_caller_s_right_to_it(path: Path) -> None:
    rights, read = iter([OPERATOR]), bytearray()

    def caller() -> Caller:
        if (found := next(rights, None)) is None:
            raise Denied("The key was revoked.")
        return found

    async def carry() -> None:
        place = settings({"MEMORY_DB_PATH": str(path)})
        async with opened_here(place, Telemetry.started(None)) as here:
            async for piece in replace(here, caller=caller).export("demo"):
                read.extend(piece)

    with pytest.raises(NotAllowed):
        asyncio.run(carry())
    assert not read
