"""A database that cannot be used: one sentence before anything is served, without the URL."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
REFUSES = "The database refuses the connection: check the role, its password and rights"
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


@for_each("url", [f"postgresql://ada:{PASSWORD}@[::1/memory",
                  f"postgresql://ada:{PASSWORD}@host/m?nonsense=1"])  # fmt: skip
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(Refusal, match=r"^MEMORY_DATABASE_URL is not a PostgreSQL URL, such as"):
        started(url)


def test_what_cannot_be_connected_to_is_told_in_a_sentence(
    blank_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = f"postgresql://ada:{PASSWORD}@"
    latin = f"latin_{os.getpid()}"
    options = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    postgres.ordered(blank_database, f"CREATE DATABASE {latin} {options}")
    told = {
        f"{nobody}/memory?host={tmp_path}": "The database cannot be reached: check the host and",
        f"{nobody}database.invalid/memory": "The database cannot be reached:",
        url_of(blank_database, dbname="nowhere"): REFUSES,
        url_of(blank_database, user="nobody_here"): REFUSES,
        url_of(blank_database, target_session_attrs="standby"): REFUSES,
        url_of(blank_database, dbname=latin): "The database has the encoding LATIN1; make one with",
    }
    try:
        for url, sentence in told.items():
            assert refused(url).startswith(sentence)
    finally:
        postgres.ordered(blank_database, f"DROP DATABASE {latin} WITH (FORCE)")

    with without_encryption() as port:
        required = url_of(blank_database, host="127.0.0.1", port=f"{port}", sslmode="require")
        assert refused(required).startswith(REFUSES)
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", 140_000)
    sentence = "The database is PostgreSQL 14; the oldest supported is 15."
    assert refused(blank_database) == sentence


@pytest.mark.slow
def test_a_role_without_the_rights_that_it_needs_is_told_which(
    blank_database: str, postgresql: str
) -> None:
    name, used = (conninfo_to_dict(it)["dbname"] for it in (blank_database, postgresql))
    may_create = f"GRANT CREATE ON DATABASE {name} TO {{}}"
    none_left = "ALTER ROLE {} CONNECTION LIMIT 0"
    for url, grants, sentence in (
        (blank_database, ["ALTER ROLE {} NOLOGIN"], REFUSES),
        (blank_database, [may_create, none_left], "The database is starting or stopping, has no"),
        (postgresql, [f"GRANT CREATE ON DATABASE {used} TO {{}}"], "The role lacks rights"),
    ):  # fmt: skip
        with role(url, *grants) as own:
            assert refused(own).startswith(sentence)

    with role(blank_database) as own, pytest.raises(Refusal, match=r"^The role lacks rights"):
        started(own)
    with role(blank_database, may_create) as own:
        started(own)
        assert Terminal({"MEMORY_DATABASE_URL": own}).say("tenants", "list").startswith("TENANT")
    with role(blank_database, f"REVOKE CONNECT ON DATABASE {name} FROM public") as own:
        assert refused(own).startswith(REFUSES)


HARMS = {
    "UPDATE agentops.tenants SET version = 99": "newer",
    "UPDATE agentops.control SET version = 99": "A newer version has upgraded the database",
    "ALTER DATABASE {} SET default_transaction_read_only = on": (
        "The database is read-only, as a standby is"
    ),
    "DROP SCHEMA t_acme CASCADE": (
        "The schema of the tenant acme is gone: restore it from a backup"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS)
def test_what_another_has_made_of_the_database_is_told_in_a_sentence(
    postgresql: str, harm: str
) -> None:
    terminal = Terminal({"MEMORY_DATABASE_URL": postgresql})
    terminal.say("tenants", "create", "acme")
    postgres.ordered(postgresql, harm.format(conninfo_to_dict(postgresql)["dbname"]))

    if "tenants SET version" in harm:  # of which a command without a tenant knows nothing
        with pytest.raises(Refusal, match=HARMS[harm]):
            started(postgresql)
        assert "default has version 99" in terminal.run("stats").output
    else:
        assert refused(postgresql).startswith(HARMS[harm])


def test_a_schema_of_our_name_that_another_program_made(blank_database: str) -> None:
    postgres.ordered(blank_database, "CREATE SCHEMA agentops", "CREATE TABLE agentops.tenants ()")

    sentence = refused(blank_database)

    assert sentence.startswith("The database has a schema agentops that this program did not make")
    with psycopg.connect(blank_database) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'agentops'"
        ).fetchall()
    assert tables == [("tenants",)]


@pytest.mark.slow
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
    assert REFUSES in told
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
def without_encryption() -> Iterator[int]:
    """The port of a server that has no encryption, as it tells whoever asks for it."""

    def accept() -> None:
        with suppress(OSError):  # the end
            while True:
                near, _ = listener.accept()
                with near:
                    near.recv(8)
                    near.sendall(b"N")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
