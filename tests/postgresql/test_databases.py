"""The cluster and the databases of the tests themselves."""

from pathlib import Path

import psycopg
import pytest

from ..support.databases import Databases

TENANTS = b"SELECT count(*) FROM agentops.tenants"


def test_a_file_has_one_database_until_it_is_released(databases: Databases, tmp_path: Path) -> None:
    first, other = databases.at(tmp_path / "a"), databases.at(tmp_path / "b")

    assert databases.at(tmp_path / "a") == first != other
    databases.release(tmp_path)


def test_a_released_database_is_as_new(databases: Databases, tmp_path: Path) -> None:
    url = databases.at(tmp_path / "a")
    with psycopg.connect(url) as connection:
        before = connection.execute(TENANTS).fetchall()
        connection.execute("DELETE FROM agentops.tenants")
    databases.release(tmp_path)

    assert databases.at(tmp_path / "a") == url
    with psycopg.connect(url) as connection:
        assert connection.execute(TENANTS).fetchall() == before
    databases.release(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE agentops.another ()", "ALTER TABLE agentops.tenants RENAME TO others",
        "ALTER TABLE agentops.tenants RENAME COLUMN tenant TO other", "TRUNCATE agentops.tenants",
    ],
)  # fmt: skip
def test_one_of_which_more_than_rows_was_changed_is_made_again(
    databases: Databases, tmp_path: Path, change: str
) -> None:
    url = databases.at(tmp_path / "a")
    with psycopg.connect(url) as connection:
        connection.execute(change.encode())
    databases.release(tmp_path)

    assert databases.at(tmp_path / "a") != url
    databases.release(tmp_path)


def test_a_blank_database_holds_nothing(blank_database: str) -> None:
    with psycopg.connect(blank_database) as connection:
        found = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE oid >= 16384 AND nspname !~ '^pg_'"
        )
        assert found.fetchall() == []
