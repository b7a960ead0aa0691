"""Statements on a connection of PostgreSQL: what is prepared, and texts that look like a NUL."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from agentops_memory.postgresql.connection import PostgresConnection

from ..support.samples import for_each
from ..support.service import Service, observation, serving

PREPARED_AFTER = 5  # times, by psycopg


@pytest.fixture
def connection(blank_database: str) -> Iterator[PostgresConnection]:
    with psycopg.connect(blank_database) as raw:
        yield PostgresConnection(raw)


def test_what_could_not_be_prepared_in_what_was_undone_is_prepared_afterwards(
    connection: PostgresConnection,
) -> None:
    with connection.pipelined():
        connection.execute("CREATE TABLE nests AS SELECT 'heron'")
        connection.execute("SAVEPOINT words")
        connection.roll_back_to("words")
        for _ in range(PREPARED_AFTER):
            assert connection.execute("SELECT * FROM nests").fetchall() == [("heron",)]
        connection.execute("SAVEPOINT words")
        connection.execute("SET LOCAL search_path TO nowhere")
        with pytest.raises(errors.UndefinedTable):
            connection.execute("SELECT * FROM nests").fetchall()

        connection.roll_back_to("words")

        assert connection.execute("SELECT * FROM nests").fetchall() == [("heron",)]


@for_each(
    "values", [[], [1, -1], ["", "NULL", "{a,b}", 'said "so"', "a\\b\\", " c ", "naïve", "\n"]]
)
def test_an_array_has_the_values_of_its_list(
    connection: PostgresConnection, values: list[int] | list[str]
) -> None:
    type_ = "TEXT" if values and isinstance(values[0], str) else "BIGINT"
    row = connection.execute(f"SELECT CAST(:values AS {type_}[])", {"values": values}).fetchone()
    assert row == (values,)


@pytest.fixture
def service(postgresql: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    with serving(folder / "memory.db", MEMORY_DATABASE_URL=postgresql) as running:
        yield running


@for_each("text", ["\\u0000", "\\\\u0000", "a\\", '\\"u0000'])
def test_a_text_that_only_looks_like_a_nul_is_a_text_as_any_other(
    service: Service, text: str
) -> None:
    row = observation("herons", session_id=text, topic_key=text, project=f"p{text}", tags=[text])
    for imported in (1, 0):
        answer = service.http.post("/import", json={"observations": [row]})
        assert answer.json()["imported_observations"] == imported
    (found,) = service.http.get("/search", params={"q": "herons", "tag": text}).json()
    assert found["topic_key"] == text


@pytest.mark.slow
@for_each("word", ["अ" * 20_000, f"a{'я' * 20_000}"])  # the index has 32,768 bytes of a word
def test_a_word_that_the_index_cuts_within_a_letter_is_stored_and_found(
    service: Service, word: str
) -> None:
    for number in range(12):  # more than there are threads of the database
        service.save(f"{word} {number}")
    service.save(f"plain words {len(word)}")

    alike = service.http.post("/observations?similar=3", json=observation(f"{word} once more"))
    found = service.http.get("/search", params={"q": f"plain {len(word)}", "project": "demo"})

    assert alike.status_code == 201
    assert found.json()[0]["content"] == f"plain words {len(word)}"
