"""A database that cannot be used: one sentence before anything is served, without the URL."""

import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from agentops_memory.errors import Refusal

from ..support import postgres
from ..support.process import run
from ..support.samples import for_each
from ..support.service import serving
from ..support.terminal import Terminal

PASSWORD = "hunter2-of-the-database"  # noqa: S105 - of no database
NUMBERS = count(1)


def started(url: str) -> None:
    """Start the service, and end it."""
    with serving(Path("nowhere/memory.db"), MEMORY_DATABASE_URL=url):
        pass


def refused(url: str) -> str:
    """What a start of the service says, which is what a command says."""
    with pytest.raises(Refusal) as refusal:
        started(url)
    sentence = str(refusal.value)
    done = Terminal({"MEMORY_DATABASE_URL": url}).run("keys", "list")
    assert done.exit_code == 1
    assert done.output == f"agentops-memory: {sentence}\n"
    given = conninfo_to_dict(url)
    secrets = [given.get(name) for name in ("user", "password", "host", "dbname")]
    assert [it for it in secrets if it not in (None, "postgres") and str(it) in sentence] == []
    return sentence


def url_of(url: str, **parts: str) -> str:
    """The URL with other parts, as a URL."""
    given = {**conninfo_to_dict(url), **parts}
    user, name = given.pop("user", "postgres"), given.pop("dbname")
    password = f":{given.pop('password')}" if "password" in given else ""
    query = "&".join(f"{key}={value}" for key, value in given.items())
    return f"postgresql://{user}{password}@/{name}?{query}"


@contextmanager
def role(url: str, *grants: str) -> Iterator[str]:
    """The URL for a role of its own, which may do nothing but what is granted, in `{}`."""
    name = f"ada_{os.getpid()}_{next(NUMBERS)}"
    postgres.ordered(url, f"CREATE ROLE {name} LOGIN", *(it.format(name) for it in grants))
    try:
        yield url_of(url, user=name)
    finally:
        postgres.ordered(url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@contextmanager
def database(url: str, options: str) -> Iterator[str]:
    """The URL of a database that is made so."""
    name = f"made_{os.getpid()}_{next(NUMBERS)}"
    postgres.ordered(url, f"CREATE DATABASE {name} {options}")
    try:
        yield url_of(url, dbname=name)
    finally:
        postgres.ordered(url, f"DROP DATABASE {name} WITH (FORCE)")


def test_a_host_that_nobody_listens_on(tmp_path: Path) -> None:
    sentence = refused(f"postgresql://ada:{PASSWORD}@/memory?host={tmp_path}")

    assert sentence.startswith("The database cannot be reached: check the host and the port")


def test_a_host_that_has_no_address() -> None:
    sentence = refused(f"postgresql://ada:{PASSWORD}@database.invalid/memory")

    assert sentence.startswith("The database cannot be reached:")


@pytest.mark.parametrize(
    "url",
    [f"postgresql://ada:{PASSWORD}@[::1/memory", f"postgresql://ada:{PASSWORD}@host/m?nonsense=1"],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(Refusal, match=r"^MEMORY_DATABASE_URL is not a PostgreSQL URL, such as"):
        started(url)


def test_what_cannot_be_connected_to_is_told_in_a_sentence(blank_database: str) -> None:
    sentence = refused(url_of(blank_database, dbname="nowhere"))

    assert sentence.startswith("There is no such database: create it, or name another")

    sentence = refused(url_of(blank_database, user="nobody_here"))

    assert sentence.startswith("There is no such role: create it, or name another")

    sentence = refused(url_of(blank_database, target_session_attrs="standby"))

    assert sentence.startswith("MEMORY_DATABASE_URL asks for a standby")

    with relayed(blank_database, lambda answer: answer) as url:
        sentence = refused(url_of(url, sslmode="require"))

    assert sentence.startswith("Encryption as in MEMORY_DATABASE_URL is not possible")

    version = re.compile(rb"(server_version\0)\d\d")
    with relayed(blank_database, lambda answer: version.sub(rb"\g<1>14", answer)) as url:
        sentence = refused(url)

    assert sentence == "The database is PostgreSQL 14; the oldest supported is 15."


def test_a_role_without_the_rights_that_it_needs_is_told_which(blank_database: str) -> None:
    with role(blank_database, "ALTER ROLE {} NOLOGIN") as url:
        assert refused(url).startswith("The role may not log in")

    with role(blank_database) as url:
        assert refused(url).startswith("The role may not create a schema in the database")

    name = conninfo_to_dict(blank_database)["dbname"]
    with role(blank_database, f"REVOKE CONNECT ON DATABASE {name} FROM public") as url:
        assert refused(url).startswith("The role may not connect to the database")


def test_a_role_that_does_not_own_what_is_there(postgresql: str) -> None:
    name = conninfo_to_dict(postgresql)["dbname"]
    with role(postgresql, f"GRANT CREATE ON DATABASE {name} TO {{}}") as url:
        assert refused(url).startswith("The schema agentops belongs to another role")


def test_a_role_with_just_the_rights_that_it_needs_serves(blank_database: str) -> None:
    name = conninfo_to_dict(blank_database)["dbname"]
    with role(blank_database, f"GRANT CREATE ON DATABASE {name} TO {{}}") as url:
        started(url)
        assert Terminal({"MEMORY_DATABASE_URL": url}).say("tenants", "list").startswith("TENANT")


def test_an_encoding_that_cannot_hold_all_texts(blank_database: str) -> None:
    options = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    with database(blank_database, options) as url:
        assert refused(url).startswith("The database has the encoding LATIN1; make one with CREATE")


def test_a_database_that_is_read_only(blank_database: str) -> None:
    name = conninfo_to_dict(blank_database)["dbname"]
    postgres.ordered(
        blank_database, f"ALTER DATABASE {name} SET default_transaction_read_only = on"
    )

    assert refused(blank_database).startswith("The database is read-only, as a standby is")


def test_a_schema_of_our_name_that_another_program_made(blank_database: str) -> None:
    postgres.ordered(blank_database, "CREATE SCHEMA agentops", "CREATE TABLE agentops.tenants ()")

    sentence = refused(blank_database)

    assert sentence.startswith("The database has a schema agentops that this program did not make")
    with psycopg.connect(blank_database) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'agentops'"
        ).fetchall()
    assert tables == [("tenants",)]


def test_what_a_newer_version_of_the_program_made(postgresql: str) -> None:
    postgres.ordered(postgresql, "UPDATE agentops.control SET version = 99")

    assert refused(postgresql).startswith("A newer version has upgraded the database")


def test_a_tenant_that_a_newer_version_of_the_program_has_migrated(postgresql: str) -> None:
    postgres.ordered(postgresql, "UPDATE agentops.tenants SET version = 99")

    with pytest.raises(Refusal, match=r"newer"):
        started(postgresql)
    done = Terminal({"MEMORY_DATABASE_URL": postgresql}).run("stats")
    assert "The schema of the tenant default has version 99" in done.output


def test_a_tenants_schema_that_is_gone(postgresql: str) -> None:
    terminal = Terminal({"MEMORY_DATABASE_URL": postgresql})
    terminal.say("tenants", "create", "acme")
    postgres.ordered(postgresql, "DROP SCHEMA t_acme CASCADE")

    assert refused(postgresql).startswith(
        "The schema of the tenant acme is gone: restore it from a backup"
    )


@pytest.mark.heavy
def test_a_password_that_is_wrong_or_missing_and_a_role_that_no_rule_lets_in() -> None:
    with own_cluster("local all bertha reject", "local all ada scram-sha-256") as url:
        postgres.ordered(
            url, f"CREATE ROLE ada LOGIN PASSWORD '{PASSWORD}'", "CREATE ROLE bertha LOGIN"
        )

        wrong = refused(url_of(url, user="ada", password=PASSWORD[::-1]))
        missing = refused(url_of(url, user="ada"))
        rejected = refused(url_of(url, user="bertha"))

    assert wrong == missing
    assert wrong.startswith("The database refuses the role or its password")
    assert rejected.startswith("The database admits no one from here")


def test_a_database_without_a_connection_left(blank_database: str) -> None:
    name = conninfo_to_dict(blank_database)["dbname"]
    with role(blank_database, f"GRANT CREATE ON DATABASE {name} TO {{}}") as url:
        user = conninfo_to_dict(url)["user"]
        postgres.ordered(blank_database, f"ALTER ROLE {user} CONNECTION LIMIT 0")
        assert refused(url).startswith("It has no free connection: raise max_connections")


def test_no_log_and_no_list_of_processes_has_the_url(blank_database: str) -> None:
    """Nor has what goes wrong at the driver's level, however much is logged."""
    url = url_of(blank_database, password=PASSWORD, dbname="nowhere")
    done = run(
        "serve",
        variables={
            "MEMORY_DATABASE_URL": url, "MEMORY_LISTEN": "127.0.0.1:0", "MEMORY_LOG_LEVEL": "debug",
        },
    )  # fmt: skip

    assert done.returncode == 1
    told = done.stdout + done.stderr
    assert "There is no such database" in told
    assert PASSWORD not in told
    assert "nowhere" not in told


@for_each(
    "argument",
    [
        f"postgresql://ada:{PASSWORD}@database/memory",
        f"--db=postgres://ada:{PASSWORD}@database/memory",
        f"postgresql://database/memory?user=ada&password={PASSWORD}",
    ],
)
def test_no_command_takes_a_password_as_an_argument(argument: str) -> None:
    done = run("search", argument)

    assert done.returncode == 1
    assert "put the URL into MEMORY_DATABASE_URL" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr


@contextmanager
def relayed(url: str, changed: Callable[[bytes], bytes]) -> Iterator[str]:
    """The URL of the same server, each of whose answers is changed before it arrives."""
    given = conninfo_to_dict(url)
    host, port = str(given.get("host", "127.0.0.1")), str(given.get("port", "5432"))

    def relay(near: socket.socket) -> None:
        with closing(near), closing(_connected(host, int(port))) as far:
            back = threading.Thread(target=_pump, args=(far, near, changed))
            back.start()
            _pump(near, far, lambda asked: asked)
            back.join()

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:  # the end
                return
            threading.Thread(target=relay, args=(near,)).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        yield url_of(url, host="127.0.0.1", port=str(listener.getsockname()[1]))
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()


def _connected(host: str, port: int) -> socket.socket:
    if host.startswith("/"):
        far = socket.socket(socket.AF_UNIX)
        far.connect(f"{host}/.s.PGSQL.{port}")
        return far
    return socket.create_connection((host, port))


def _pump(source: socket.socket, target: socket.socket, changed: Callable[[bytes], bytes]) -> None:
    try:
        while piece := source.recv(1 << 16):
            target.sendall(changed(piece))
        target.shutdown(socket.SHUT_WR)
    except OSError:  # the other side has left
        return


@contextmanager
def own_cluster(*rules: str) -> Iterator[str]:
    """The URL of a cluster of this test alone, whose rules of access come before all others."""
    if os.environ.get("PGURL"):
        pytest.skip("rules of access can be made for a cluster of our own alone")
    folder = postgres.owned_folder()
    command = postgres.made(folder, *postgres.FAST)
    access = folder / "data" / "pg_hba.conf"
    access.write_text("\n".join([*rules, access.read_text()]))
    with subprocess.Popen(
        command, cwd="/", user=postgres.user(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        ready = (postgres.binaries() / "pg_isready", "-q", "-h", folder)
        while server.poll() is None and subprocess.run(ready, check=False).returncode:
            pass
        try:
            yield postgres.at(folder)
        finally:
            server.kill()
    subprocess.run(["rm", "-rf", folder], check=True)
