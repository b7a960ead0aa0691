"""What is done to memory stores for good is noted once, and only when it is done."""

from pathlib import Path

from ..support.anthropic_sdk import STORES as THEIR_STORES
from ..support.callers import audit, calling, made_key
from ..support.service import serving
from ..support.stores import STORES, at, entry, ids, store, version_at, versions


def noted(path: Path) -> list[tuple[object, object]]:
    """The deeds in stores that the audit has, and by which key."""
    lines = [line for line in audit(path) if str(line["action"]).split(".")[0] in NOUNS]
    return [(line["action"], line["version" if "version" in line else "store"]) for line in lines]


NOUNS = ("store", "version")


def test_a_redaction_is_noted_once_however_often_it_is_asked_for(path: Path) -> None:
    with serving(path) as service, calling(service, made_key(path)) as http:
        home = store(http)
        entry(http, home, "a.md")
        (head,) = versions(http, home)
        theirs = f"{THEIR_STORES}/{home['id']}/memory_versions/{head['id']}/redact"
        ours, key = f"{version_at(home, head)}/redact", {"Idempotency-Key": "k1"}

        asked = [
            http.post(theirs),  # it is the current one: refused
            http.post(ours, headers=key),
            http.post(ours, headers=key),
            http.post(ours),
            http.post(ours, headers={"Idempotency-Key": "k2"}),
            http.post(f"{at(home, 'versions')}/memver_{'0' * 32}/redact"),
        ]

    assert [answer.status_code for answer in asked] == [400, 200, 200, 409, 409, 404]
    assert [action for action, _ in noted(path)] == ["version.redacted"]


def test_a_deletion_is_noted_once_and_not_under_a_key_that_was_used(path: Path) -> None:
    with serving(path) as service, calling(service, made_key(path)) as http:
        homes = [store(http) for _ in range(2)]
        key = {"Idempotency-Key": "k1"}

        asked = [
            http.delete(at(homes[0]), headers=key), http.delete(at(homes[0]), headers=key),
            http.delete(at(homes[1]), headers=key), http.delete(at(homes[0])),
        ]  # fmt: skip

        assert [answer.status_code for answer in asked] == [204, 204, 409, 404]
        assert ids(http.get(STORES)) == [homes[1]["id"]]
    assert [action for action, _ in noted(path)] == ["store.deleted"]
