"""What is redacted or deleted in a memory store leaves no byte in any file, and stays readable."""

from pathlib import Path

import pytest

from ..support.engines import is_postgresql, rows
from ..support.erasing import remains
from ..support.files import assert_index_is_whole
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service
from ..support.store_dialects import CLOUD, Dialect, in_both
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


# What is done to an entry, step by step, after which the words are gone, and not before.
LIVES = [
    "change redact", "redact change", "redact delete", "delete redact",
    "same change redact redact",  # another version has the same text
]  # fmt: skip


@pytest.mark.slow
@requirement(
    "stores:redact:bytes", "stores:decided:redact-head", "stores:redact:only-that",
)  # fmt: skip
@pytest.mark.parametrize("life", LIVES)
def test_a_redacted_text_stays_as_long_as_something_says_it(
    service: Service, home: Object, life: str
) -> None:
    http = service.http
    made = entry(http, home, "a", HIDDEN)
    for step in life.split():
        assert left(service) == set(WORDS)
        if step != "redact":
            found = http.get(at(home, "search"), params={"q": "xylographers"})
            assert ids(found) == [made["id"]]
        match step:
            case "change":
                update(http, home, made, "Something else.")
            case "same":
                update(http, home, made, HIDDEN)
            case "delete":
                delete(http, entry_at(home, made))
            case _:
                (version, *_) = [
                    it for it in versions(http, home, entry_id=made["id"])[::-1]
                    if it["action"] != "deleted" and not it["redacted"]
                ]  # fmt: skip
                assert ok(http.get(version_at(home, version)))["content"] == HIDDEN
                redact(http, home, version)

    assert left(service) == set()
    assert ids(http.get(at(home, "search"), params={"q": "xylographers"})) == []
    if "delete" not in life:
        assert ok(http.get(entry_at(home, made)))["content"] == "Something else."
    assert remains(service.path.parent, "walnut")
    assert_index_is_whole(service.path)


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


@requirement("stores:secrets")
@in_both
def test_secrets_are_kept_out_and_counted(service: Service, home: Object, dialect: Dialect) -> None:
    token, http = "ghp_" + "a1B2" * 9, service.http
    named = {"name": f"of {token}", "description": token, "metadata": {"k": token}}
    entries, path = dialect.at(home, "memories"), f"{dialect.slash}a"
    made = http.post(entries, json={"path": path, "content": f"Use {token}."})
    answers = {3: http.post(dialect.stores, json=named), 1: made}
    if dialect is CLOUD:
        body = {"path": "b", "content": token, "metadata": {"k": token}}
        answers[2] = http.post(entries, json=body)
        change = {"content": token, "content_sha256": made.json()["content_sha256"]}
        again = http.put(f"{entries}/{made.json()['id']}", json=change)
        assert (again.status_code, again.headers["x-redacted"]) == (200, "1")
    else:
        changed = http.post(f"{dialect.stores}/{answers[3].json()['id']}", json=named)
        assert changed.headers["x-redacted"] == "3"
        assert changed.json() == answers[3].json()

    for count, answer in answers.items():
        assert (answer.is_success, answer.headers["x-redacted"]) == (True, str(count))
        assert token not in answer.text
    assert "x-redacted" not in http.get(f"{entries}/{made.json()['id']}").headers
    assert remains(service.path.parent, token) == set()
