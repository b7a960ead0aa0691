"""Exports and imports at the terminal: whole or not at all, over HTTP and on the file."""

import asyncio
import copy
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

from agentops_memory.cli.commands.transfer import _sentence
from agentops_memory.cli.output import HINTS
from agentops_memory.errors import Denied
from agentops_memory.local import opened_here
from agentops_memory.memory.access import OPERATOR, Caller
from agentops_memory.settings import settings
from agentops_memory.telemetry import Telemetry
from agentops_memory_client.contract.models import Denied as NotAllowed, ImportConflict

from ..support.engines import is_postgresql
from ..support.service import Service, lasting_with, observation
from ..support.terminal import Terminal

Row = dict[str, Any]

UID = "01900000-0000-7000-8000-0000000000{:02}"
AT, LATER = "2029-05-06T07:08:09Z", "2029-05-07T07:08:09Z"
ENGRAM: Row = {
    "version": "0.1.0",
    "exported_at": "2026-04-12 10:00:00",
    "sessions": [
        {"id": "e1", "project": "Shop", "directory": "/x", "started_at": "2026-04-12 10:00:00",
         "ended_at": "2026-04-12 11:00:00", "summary": "Done."},
        {"id": "e2", "project": "", "directory": "/x", "started_at": "2026-04-12 10:00:00",
         "ended_at": None},
    ],
    "observations": [
        {"id": 1, "session_id": "e1", "type": "decision", "title": "Queue",
         "content": "Orders wait.", "tool_name": "bash", "project": None, "scope": "project",
         "topic_key": None,
         "revision_count": 2, "duplicate_count": 3, "last_seen_at": "2026-04-12 10:05:00",
         "created_at": "2026-04-12 10:00:01", "updated_at": "2026-04-12 10:04:00",
         "deleted_at": None},
        {"id": 2, "session_id": "e1", "type": "note", "title": "Mine", "content": "Not for you.",
         "scope": " Personal", "revision_count": 1, "duplicate_count": 1,
         "created_at": "2026-04-12 10:00:02", "updated_at": "2026-04-12 10:00:02"},
        {"id": 3, "session_id": "e1", "type": "note", "title": "Gone", "content": "It went.",
         "scope": "project", "revision_count": 1, "duplicate_count": 1,
         "created_at": "2026-04-12 10:00:02", "updated_at": "2026-04-12 10:00:02",
         "deleted_at": "2026-04-13 10:00:00"},
        {"id": 4, "session_id": "e2", "type": "note", "title": "", "content": "First line.\nRest.",
         "scope": "project", "topic_key": "a/b", "revision_count": 1, "duplicate_count": 1,
         "created_at": "2026-04-12 10:00:03", "updated_at": "2026-04-12 10:00:03"},
    ],
    "prompts": [{"id": n, "session_id": "e1", "content": "Hi", "created_at": "2026-04-12 10:00:00"}
                for n in (1, 2)],
}  # fmt: skip
LEFT_OUT = (
    "This is an Engram export. Not imported: 2 prompts, 1 personal observation, "
    "1 deleted observation.\n"
)


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


def test_an_export_to_a_terminal_ends_its_line(
    terminal: Terminal, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.save("Queues hold.")
    monkeypatch.setattr("agentops_memory.cli.output.is_terminal", lambda _: True)

    assert terminal.say("export").endswith("}\n")


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
        "observations[0] Ours. (demo): #1 has different content, and is kept\n"
        "observations[1] Newer. (demo): it replaces #2, which has the same topic key and is "
        "older\n"
        "observations[2] Older. (demo): #2 has the same topic key, is not older, and is kept\n"
        "observations[6] Twice. (demo): an earlier observation of the document has different "
        "content, and is kept\n"
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
        (b" \n", "an object is expected."), (b"\xff" * 99, "invalid JSON"),
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
    conflict = ImportConflict(  # as another version may know it
        place=2, id=1, reason="changed", kept="imported", project="p", title="T"
    )
    assert _sentence(conflict) == "observations[2] T (p): #1 is in conflict with it"
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


@pytest.mark.slow
def test_an_export_of_engram_is_imported_and_what_is_left_out_is_told(
    terminal: Terminal, service: Service, folder: Path
) -> None:
    file = written(folder / "engram.json", ENGRAM)

    plan = terminal.json("import", file, "--dry-run")
    first, again = (terminal.run("import", file) for _ in range(2))

    assert (plan["new_sessions"], plan["new_observations"]) == (2, 2)
    assert (first.exit_code, first.stderr) == (0, LEFT_OUT)
    assert first.stdout == "Imported 2 observations and 2 sessions.\n"
    assert again.stdout == "Imported 0 observations and 0 sessions.\n"
    queue, line = stored(service)["observations"]
    assert queue | {"uid": "", "normalized_hash": ""} == {
        "id": 1, "uid": "", "session_id": "e1", "type": "decision", "title": "Queue",
        "content": "Orders wait.", "tags": ["bash"], "project": "shop", "scope": "project",
        "normalized_hash": "", "revision_count": 2, "duplicate_count": 3,
        "last_seen_at": "2026-04-12T10:05:00Z", "created_at": "2026-04-12T10:00:01Z",
        "updated_at": "2026-04-12T10:04:00Z",
    }  # fmt: skip
    assert (line["title"], line["project"], line["topic_key"]) == ("First line.", "unknown", "a/b")
    assert stored(service)["sessions"][0] == {
        "id": "e1", "project": "shop", "started_at": "2026-04-12T10:00:00Z", "message_count": 0,
        "ended_at": "2026-04-12T11:00:00Z", "summary": "Done.",
    }  # fmt: skip
    assert {it.name for it in service.path.parent.iterdir() if ".import" in it.name} == set()

    # It is known by its shape, and its memories after a change.
    service.http.patch("/observations/1", json={"content": "Changed here."})
    sorted_ = dict(sorted(ENGRAM.items()))
    sorted_.pop("version")
    third = terminal.run("import", written(folder / "sorted.json", sorted_))
    assert (third.stdout, third.stderr) == ("Imported 0 observations and 0 sessions.\n", LEFT_OUT)
    without = written(folder / "less.json", ENGRAM | {"prompts": None})
    plan = terminal.json("import", without, "--dry-run")
    assert (plan["same_observations"], plan["conflicting_observations"]) == (1, 1)
    empty = {"version": "0.1.0", "sessions": None, "observations": None, "prompts": None}
    done = terminal.run("import", written(folder / "empty.json", empty))
    assert (done.exit_code, done.stdout) == (0, "Imported 0 observations and 0 sessions.\n")
    assert done.stderr == "This is an Engram export. Not imported: nothing.\n"


@pytest.mark.slow
def test_what_engram_has_cut_itself_or_written_in_one_second_is_imported_whole(
    folder: Path,
) -> None:
    terminal = Terminal({"MEMORY_DB_PATH": str(folder / "memory.db"), "MEMORY_PROJECT": ""})
    rows = [ENGRAM["observations"][0] | change for change in (
        {"title": "t" * 501, "content": "x" * 50_000 + "... [truncated]"},
        {"id": 9, "title": "t" * 500, "content": "y" * 50_000},
        {"id": None, "content": "Three."}, {"id": None, "content": "Four."},
    )]  # fmt: skip
    file = written(folder / "long.json", ENGRAM | {"observations": rows, "prompts": []})

    done = terminal.run("import", file)

    assert "This is an Engram export. Not imported: 1 overlong ending.\n" in done.stderr
    assert done.stdout == "Imported 4 observations and 2 sessions.\n"
    assert terminal.say("import", file) == "Imported 0 observations and 0 sessions.\n"
    exported = json.loads(terminal.say("export"))
    cut, whole, *_ = exported["observations"]
    assert cut["title"] == "t" * 485 + "... [truncated]"
    assert cut["content"] == "x" * 49_985 + "... [truncated]"
    assert (whole["title"], whole["content"]) == ("t" * 500, "y" * 50_000)

    # A document of ours is none of Engram, whatever else it has.
    ours = json.dumps({"version": "2", "prompts": []} | exported)
    done = terminal.run("import", "-", "--db", folder / "other.db", given=ours)
    assert (done.exit_code, "Engram export" in done.stderr) == (0, False)
    carried = json.loads(terminal.say("export", "--db", folder / "other.db"))
    assert carried["observations"] == exported["observations"]


@pytest.mark.slow
def test_rows_of_engram_that_are_wrong_are_refused_and_break_nothing(folder: Path) -> None:
    terminal = Terminal({"MEMORY_DB_PATH": str(folder / "memory.db")})
    changes: tuple[Row, ...] = (
        {"session_id": None}, {"session_id": []}, {"created_at": "soon"}, {"title": 1},
        {"content": None}, {"type": {}}, {"topic_key": "x" * 201}, {"tool_name": 3, "title": [1]},
    )  # fmt: skip
    for change in changes:
        wrong = copy.deepcopy(ENGRAM)
        wrong["observations"][0].update(change)
        done = terminal.run("import", "-", given=json.dumps(wrong))
        assert (done.exit_code, "observations[0]" in done.stderr) == (1, True), change
    for odd in ({"sessions": [None, 3]}, {"observations": [None]}, {"sessions": "x"}):
        done = terminal.run("import", "-", given=json.dumps({"version": "1"} | odd))
        assert done.exit_code == 1, odd
    assert json.loads(terminal.say("export"))["observations"] == []


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
