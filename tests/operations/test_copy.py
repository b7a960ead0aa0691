"""What a service keeps goes from its files into PostgreSQL and back, whole or not at all."""

import asyncio
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agentops_memory.memory.access import OPERATOR
from agentops_memory.operations import copying as tenants
from agentops_memory.operations.copying import DatabaseRows, Table
from agentops_memory.postgresql.connection import brought_up_to_date, prepare
from agentops_memory.postgresql.engine import PostgresEngine
from agentops_memory.postgresql.transaction import number_of
from agentops_memory.sqlite.connection import connect

from ..support import planted
from ..support.damaged_values import LEFT
from ..support.files import assert_areas_are_whole, assert_index_is_whole, schema
from ..support.process import program, until
from ..support.service import Clock, Service, serving
from ..support.stores import STORES
from ..support.terminal import Terminal

pytestmark = pytest.mark.sqlite_files

Database = psycopg.Connection[Any]

ASKED = (
    "/export", "/stats", f"/search?q={planted.MARK}&explain=true", "/sessions/recent",
    f"/context?project={planted.MARK}&query=content+1", STORES, f"{planted.HOSTS}/proposals",
    f"{planted.AGENTS_MEMORY}?namespace={planted.MARK}", f"{planted.HOSTS}/runs/{planted.MARK}",
)  # fmt: skip
# What SQLite has of its own: the words, what its files hold apart from rows, and ids given out.
OF_FILES = {
    "partitions", "index_rules", "purges", "remains", "sqlite_sequence", "memory_stems",
    "area_stems", "database_state",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a file with a row of every kind, and an id that is given to nobody else."""
    folder = tmp_path_factory.mktemp("made")
    with serving(folder / "memory.db") as service:
        planted.stock(service.http)
        last = service.save("the last one", project="other")["id"]
        assert service.http.delete(f"/observations/{last}?hard=true").status_code == 204
    return folder


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "memory.db"


@pytest.fixture
def full(path: Path) -> Path:
    """The file, with a row in those tables, too, that are rarely filled."""
    with closing(connect(path)) as file:
        file.executescript(LEFT)
    return path


@pytest.fixture
def terminal(path: Path, blank_database: str) -> Terminal:
    return Terminal({"MEMORY_DB_PATH": str(path), "MEMORY_DATABASE_URL": blank_database})


@pytest.fixture
def database(blank_database: str) -> Iterator[Database]:
    with psycopg.connect(blank_database, autocommit=True) as connection:
        yield connection


def rows(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All that is copied of a file, and the ids that it goes on after."""
    with closing(connect(path)) as file:
        return {
            name: sorted(file.execute(f"SELECT * FROM {name}"), key=repr)
            for (name,) in file.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table'"
            ).fetchall()
            if name not in OF_FILES - {"sqlite_sequence"} and "_fts_" not in name
        }


def described(database: Database) -> list[Table]:
    """The tables that are copied, of a new schema."""
    prepare(database)
    with database.transaction():
        brought_up_to_date(database, "default")  # type: ignore[arg-type]
        return DatabaseRows(database, "t_default").tables


def answers(service: Service) -> dict[str, object]:
    """What a service answers, and then to saves: each has an id, and an area, that was not used."""
    service.http.headers["X-Agent-ID"] = planted.MARK
    answered: dict[str, object] = {it: service.http.get(it).text for it in ASKED}
    for project in ("demo", "new"):
        answered[project] = service.save("another", project=project, session_id=project)
        asked = {"q": f"another content {planted.MARK}", "project": project, "limit": 50}
        hits = service.http.get("/search", params=asked).json()
        answered[f"{project} found"] = [it["id"] for it in hits]
    return answered


@pytest.mark.slow
def test_a_copy_answers_as_the_original_does(
    path: Path, terminal: Terminal, blank_database: str, tmp_path: Path
) -> None:
    (tmp_path / "back.db.seal").write_bytes((tmp_path / "memory.db.seal").read_bytes())
    terminal.say("copy", "--to", "postgresql")
    terminal.say("copy", "--to", tmp_path / "back.db")

    with serving(path) as service:
        expected = answers(service)
    assert len({*map(str, expected.values())}) == len(expected)
    with serving(tmp_path / "back.db") as service:
        assert answers(service) == expected
    with serving(path, MEMORY_DATABASE_URL=blank_database) as service:
        assert answers(service) == expected


@pytest.mark.slow
def test_a_tenant_is_copied_once_with_its_keys_and_other_rows_are_refused(
    path: Path, terminal: Terminal, tmp_path: Path
) -> None:
    files = Terminal({"MEMORY_DB_PATH": str(path)})
    files.say("tenants", "create", "acme")
    files.say("save", "Title", "Content", "--project", "shop", "--tenant", "acme")
    for tenant in ("acme", "default"):
        files.say("keys", "create", "--name", tenant, "--role", "admin", "--tenant", tenant)
    copy = tmp_path / "back.db"

    terminal.say("copy", "--to", "postgresql", "--tenant", "acme")
    terminal.say("copy", "--to", copy)
    keys = Terminal({"MEMORY_DB_PATH": str(copy)}).json("keys", "list")
    assert ([it["name"] for it in keys], copy.exists()) == (["acme"], False)
    assert (tmp_path / "back.db.tenants" / "acme.db").exists()

    told = terminal.say("copy", "--to", "postgresql", "--tenant", "default", "--tenant", "acme")
    assert "default: is copied, " in told
    assert "acme: was already copied, " in told
    assert [it["name"] for it in terminal.json("keys", "list")] == ["acme", "default"]
    to_files = ("copy", "--to", copy := tmp_path / "all" / "back.db")
    terminal.say(*to_files)
    before = copy.read_bytes()
    assert [it["was_there"] for it in terminal.json(*to_files)["tenants"]] == [True, True]
    assert copy.read_bytes() == before

    terminal.say("save", "Title", "Something else", "--project", "shop")
    for target in ("postgresql", copy):
        done = terminal.run("copy", "--to", target)
        assert done.exit_code == 1
        assert "default is already in the target, with other rows. Nothing was" in done.stderr


@pytest.mark.slow
def test_keys_that_are_others_are_refused(
    path: Path, terminal: Terminal, database: Database
) -> None:
    files = Terminal({"MEMORY_DB_PATH": str(path)})
    files.say("keys", "create", "--name", "one", "--role", "admin")
    terminal.say("keys", "create", "--name", "another", "--role", "admin")
    database.execute("DELETE FROM agentops.audit")

    done = terminal.run("copy", "--to", "postgresql")

    assert (done.exit_code, "already has different keys" in done.stderr) == (1, True)
    assert database.execute("SELECT tenant FROM agentops.tenants").fetchall() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("DELETE FROM t_default.proposals", "The copy differs in the tables proposals; it was"),
        ("PERFORM pg_terminate_backend(pg_backend_pid())", "The database cannot be reached now"),
    ],
    ids=["it differs", "the connection ends"],
)
def test_a_copy_that_fails_in_the_end_is_told_in_a_sentence_and_not_kept(
    terminal: Terminal, database: Database, fault: str, told: str
) -> None:
    described(database)
    database.execute(
        f"""CREATE FUNCTION fail() RETURNS event_trigger LANGUAGE plpgsql
               AS 'BEGIN {fault}; END'"""
    )
    database.execute(
        """CREATE EVENT TRIGGER failing ON ddl_command_end WHEN TAG IN ('ALTER TABLE')
               EXECUTE FUNCTION fail()"""
    )

    done = terminal.run("copy", "--to", "postgresql")

    assert (done.exit_code, done.stdout) == (1, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"agentops-memory: {told}")
    assert database.execute("SELECT count(*) FROM t_default.memories").fetchall() == [(0,)]


HARMS = {
    "PRAGMA user_version = 16": "`agentops-memory migrate` upgrades it",
    "PRAGMA user_version = 99": "newer version",
    "UPDATE sessions SET summary = 'quoted' || char(0)": "agentops-memory doctor",
    "UPDATE sessions SET summary = 'quoted' || CAST(X'ff' AS TEXT)": "agentops-memory doctor",
}


@pytest.mark.slow
def test_a_file_of_another_format_or_with_a_damaged_text_is_refused_and_not_quoted(
    path: Path, blank_database: str, database: Database, tmp_path: Path
) -> None:
    for number, (harm, told) in enumerate(HARMS.items()):
        harmed = Path(shutil.copy(path, tmp_path / f"{number}.db"))
        with closing(connect(harmed)) as file:
            file.execute(harm)
        terminal = Terminal({"MEMORY_DB_PATH": str(harmed), "MEMORY_DATABASE_URL": blank_database})

        done = terminal.run("copy", "--to", "postgresql")

        assert (done.exit_code, told in done.stderr) == (1, True), done.stderr
        assert "quoted" not in done.stderr
    assert database.execute("SELECT tenant FROM agentops.tenants").fetchall() == []


@pytest.mark.slow
def test_nothing_is_copied_from_or_to_what_a_service_has(
    path: Path, terminal: Terminal, blank_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "END_TIMEOUT", timedelta(milliseconds=1))
    with serving(path):
        of_files = terminal.run("copy", "--to", "postgresql")
    other, back = path.with_name("other.db"), path.with_name("back.db")
    with ExitStack() as leading, serving_second(other, blank_database, leading):
        leading.close()  # the one that is left may not lead yet
        of_database = [terminal.run("copy", "--to", it) for it in ("postgresql", back)]

    assert (of_files.exit_code, "End that service first." in of_files.stderr) == (1, True)
    assert [it.exit_code for it in of_database] == [1, 1]
    assert all("A service or another copy is using the database" in it.stderr for it in of_database)
    assert not back.exists()


@contextmanager
def serving_second(path: Path, url: str, first: ExitStack) -> Iterator[Service]:
    """The second of two services on a database; the first one leads."""
    first.enter_context(serving(path, MEMORY_DATABASE_URL=url))
    with serving(path, MEMORY_DATABASE_URL=url) as second:
        yield second


@pytest.mark.slow
def test_what_a_command_is_writing_is_copied(
    path: Path, terminal: Terminal, blank_database: str, database: Database
) -> None:
    terminal.say("copy", "--to", "postgresql")
    back = path.with_name("back.db")

    with psycopg.connect(blank_database) as writing:
        lock = "SELECT pg_advisory_xact_lock_shared(%s)"
        writing.execute(lock, (number_of("t_default"),))
        writing.execute("UPDATE t_default.sessions SET summary = 'said last'")
        with program("copy", "--to", str(back), variables=terminal.variables) as copying:
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            until(lambda: database.execute(waiting).fetchall())
            writing.commit()
            copying.line("default: is copied")

    with closing(connect(back)) as file:
        said = file.execute("SELECT DISTINCT summary FROM sessions").fetchall()
    assert said == [("said last",)]


@pytest.mark.slow
def test_a_schema_of_another_version_is_refused(
    terminal: Terminal, database: Database, tmp_path: Path
) -> None:
    described(database)
    database.execute("UPDATE agentops.tenants SET version = 1")

    for target in ("postgresql", tmp_path / "back.db"):
        done = terminal.run("copy", "--to", target)
        assert (done.exit_code, "version 1, but" in done.stderr) == (1, True)
    assert not (tmp_path / "back.db").exists()


@pytest.mark.parametrize(
    ("target", "url", "told"),
    [
        ("postgresql", "", "MEMORY_DATABASE_URL is not set"),
        ("postgresql://planted@host/name", "", "shows its password in the process list"),
        ("host=host password=planted", "", "shows its password in the process list"),
        ("postgresql", "postgresql://u:planted@127.0.0.1:1/name", "cannot be reached"),
        ("back.db", "postgresql://u:planted@127.0.0.1:1/name", "cannot be reached"),
    ],
)
def test_no_url_is_told(path: Path, target: str, url: str, told: str, tmp_path: Path) -> None:
    terminal = Terminal({"MEMORY_DB_PATH": str(path), "MEMORY_DATABASE_URL": url})
    target = str(tmp_path / target) if target == "back.db" else target

    done = terminal.run("copy", "--to", target)

    assert (done.exit_code, told in done.stderr) == (1, True), done.stderr
    assert "planted" not in done.output
    assert "127.0.0.1" not in done.output


@pytest.mark.slow
def test_all_goes_there_and_comes_back_whole_or_not_at_all(
    full: Path, terminal: Terminal, blank_database: str, tmp_path: Path
) -> None:
    files, folder = Terminal({"MEMORY_DB_PATH": str(full)}), tmp_path / "folder"
    files.say("keys", "create", "--name", "one", "--role", "admin")
    audit = Path(f"{full}.audit").read_text()
    there = terminal.json("copy", "--to", "postgresql")

    with program("copy", "--to", str(folder / "back.db"), variables=terminal.variables) as copying:
        until(lambda: [*folder.glob("*/back.db")])
        copying.send(signal.SIGKILL)
        copying.wait()

    back = folder / "back.db"
    assert not back.exists()
    assert terminal.json("copy", "--to", back) == there
    (tenant,) = there["tenants"]
    assert (tenant["tenant"], tenant["was_there"]) == ("default", False)
    assert [name for name, count in tenant["rows"].items() if not count] == []
    assert rows(back) == rows(full)
    assert schema(back) == schema(full)
    assert_index_is_whole(back)
    assert [it for it in folder.iterdir() if it.is_dir()] == []
    copied = (folder / "back.db.audit").read_text()
    assert copied.startswith(audit)
    more = copied.removeprefix(audit)
    assert more.count('"keys.copied"') == more.count("\n") > 0
    assert (folder / "back.db.keys").read_bytes() == Path(f"{full}.keys").read_bytes()

    async def words_are_whole() -> None:
        async with PostgresEngine.opened(blank_database, clock=Clock()) as engine:
            assert await engine.read(OPERATOR, lambda tx: tx.index.drifts())
            await engine.read(OPERATOR, assert_areas_are_whole)

    asyncio.run(words_are_whole())
