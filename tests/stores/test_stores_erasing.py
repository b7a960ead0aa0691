"""What is redacted or deleted in a memory store leaves no byte in any file, and stays readable."""

import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..memory.test_erasing import held_open, held_open_later
from ..support.database import assert_index_is_whole
from ..support.engines import is_postgresql, rows
from ..support.erasing import remains
from ..support.process import served, until
from ..support.requirements import requirement
from ..support.service import Service
from ..support.stores import (
    STORES,
    Object,
    at,
    delete,
    entry,
    entry_at,
    ids,
    ok,
    redact,
    store,
    update,
    version_at,
    versions,
)

HIDDEN = "The xylographers of Zanzibar hide a key."
WORDS = ("xylograph", "zanzibar", "hide a key")


def scrubbed(path: Path) -> None:
    """Wait until all that was erased is gone, and its bytes too, where that is known."""
    pending = "goes_on" if is_postgresql() else "bytes_gone_at IS NULL"
    until(lambda: rows(path, f"SELECT count(*) FROM erasures WHERE {pending}") == [(0,)])


def left(service: Service) -> set[str]:
    """Which of the words are in any file."""
    scrubbed(service.path)
    return {word for _, word in remains(service.path.parent, *WORDS)}


@pytest.fixture
def home(service: Service) -> Object:
    made = store(service.http)
    entry(service.http, made, "walnut", "Shared words of a walnut.")
    return made


def oldest(service: Service, home: Object, made: Object) -> Object:
    """The first version of an entry."""
    return versions(service.http, home, entry_id=made["id"])[-1]


@pytest.mark.heavy
@requirement("stores:redact:bytes")
def test_a_redacted_version_leaves_no_byte(service: Service, home: Object) -> None:
    made = entry(service.http, home, "a", HIDDEN)
    update(service.http, home, made, "Something else.")
    assert left(service) == set(WORDS)

    redact(service.http, home, oldest(service, home, made))

    assert left(service) == set()
    assert ok(service.http.get(entry_at(home, made)))["content"] == "Something else."
    assert remains(service.path.parent, "walnut")
    assert_index_is_whole(service.path)


@pytest.mark.heavy
@requirement("stores:redact:bytes", "stores:decided:redact-head")
def test_what_the_entry_says_stays_until_it_says_something_else(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a", HIDDEN)

    redact(service.http, home, oldest(service, home, made))
    assert left(service) == set(WORDS)
    found = service.http.get(at(home, "search"), params={"q": "xylographers"})
    assert ids(found) == [made["id"]]
    update(service.http, home, made, "Something else.")

    assert left(service) == set()
    assert_index_is_whole(service.path)


@pytest.mark.heavy
@requirement("stores:redact:bytes")
def test_an_entry_whose_version_is_redacted_leaves_nothing_when_it_is_deleted(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a", HIDDEN)
    redact(service.http, home, oldest(service, home, made))
    assert left(service) == set(WORDS)

    delete(service.http, entry_at(home, made))

    assert left(service) == set()
    assert_index_is_whole(service.path)


@requirement("stores:redact:bytes")
def test_a_deleted_entrys_version_is_redacted_to_the_last_byte(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a", HIDDEN)
    delete(service.http, entry_at(home, made))
    version = oldest(service, home, made)
    assert ok(service.http.get(version_at(home, version)))["content"] == HIDDEN

    redact(service.http, home, version)

    assert left(service) == set()


@pytest.mark.slow
@requirement("stores:redact:only-that")
def test_another_version_with_the_same_text_keeps_it(service: Service, home: Object) -> None:
    made = entry(service.http, home, "a", HIDDEN)
    update(service.http, home, made, HIDDEN)
    update(service.http, home, made, "Something else.")

    redact(service.http, home, oldest(service, home, made))

    assert left(service) == set(WORDS)
    _, second, _ = versions(service.http, home, entry_id=made["id"])
    assert ok(service.http.get(version_at(home, second)))["content"] == HIDDEN
    redact(service.http, home, second)
    assert left(service) == set()


@pytest.mark.slow
def test_a_long_redacted_version_leaves_nothing_on_the_pages_it_filled(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a", f"{HIDDEN} " * 2000)
    update(service.http, home, made, "Short.")

    redact(service.http, home, oldest(service, home, made))

    assert left(service) == set()


@requirement("stores:delete:everything")
def test_a_deleted_store_leaves_no_byte(service: Service, home: Object) -> None:
    gone = store(service.http, "Zanzibar", description=HIDDEN, metadata={"xylograph": "y"})
    made = entry(service.http, gone, "zanzibar/a", HIDDEN)
    update(service.http, gone, made, "hide a key again")
    delete(service.http, entry_at(gone, entry(service.http, gone, "zanzibar/b", HIDDEN)))
    entry(service.http, gone, "zanzibar/c", f"{HIDDEN} " * 1000, metadata={"zanzibar": "z"})
    service.clock.advance(seconds=1)

    delete(service.http, at(gone))

    assert left(service) == set()
    assert ids(service.http.get(STORES)) == [home["id"]]
    assert remains(service.path.parent, "walnut")
    tables = ("stores", "spaces", "memories", "revisions", "versions")
    for table, count in zip(tables, (1, 1, 1, 1, 1), strict=True):
        assert rows(service.path, f"SELECT count(*) FROM {table}") == [(count,)], table
    assert_index_is_whole(service.path)


@pytest.mark.heavy
@requirement("stores:delete:everything")
def test_a_deletion_goes_on_after_a_crash_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with served(path) as (program, http), held_open_later(path) as hold:
        gone, kept = store(http, "Gone"), store(http, "Kept")
        for number in range(300):
            entry(http, gone, f"p{number}", f"{HIDDEN} {number}")
        made = entry(http, kept, "a")
        hold()
        delete(http, at(gone))
        program.send(signal.SIGKILL)
        program.wait()
        assert remains(tmp_path, "xylograph")

    with served(path) as (_, http):
        assert http.get(at(gone)).status_code == 404
        assert ok(http.get(entry_at(kept, made))) == made
        scrubbed(path)
        assert remains(tmp_path, *WORDS) == set()
        assert rows(path, "SELECT count(*) FROM memories") == [(1,)]
    assert_index_is_whole(path)


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_reader_of_an_older_state_holds_the_bytes_back_and_writes_go_on(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a", HIDDEN)
    update(service.http, home, made, "Something else.")
    with held_open(service.path):
        redact(service.http, home, oldest(service, home, made))
        entry(service.http, home, "b")
        assert remains(service.path.parent, "xylograph")

    assert left(service) == set()


@pytest.mark.slow
@requirement("stores:secrets")
def test_secrets_are_kept_out_and_size_and_hash_are_of_what_is_stored(
    service: Service, home: Object
) -> None:
    token = "ghp_" + "a1B2" * 9
    body: dict[str, Any] = {"path": "a", "content": f"Use {token}.", "metadata": {"k": token}}
    http: httpx.Client = service.http

    answer = http.post(at(home, "memories"), json=body)

    made = ok(answer, 201)
    assert answer.headers["x-redacted"] == "2"
    assert token not in answer.text
    assert made["size"] == len(made["content"].encode())
    after = http.put(
        entry_at(home, made), json={"content": token, "content_sha256": made["content_sha256"]}
    )
    assert (after.status_code, after.headers["x-redacted"]) == (200, "1")
    assert "x-redacted" not in http.get(entry_at(home, made)).headers
    made_store = http.post(STORES, json={"name": f"of {token[:20]} {token}"[:64]})
    assert token not in made_store.text
    assert remains(service.path.parent, token) == set()
