"""Memory stores of the Anthropic dialect: made, listed, changed, archived, deleted."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anthropic
import pytest

from ..support.anthropic_sdk import (
    STORES,
    memory,
    paths,
    refusal,
    sdk,
    store,
    versions,
)
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import START, Service

__all__ = ["sdk"]

NOON = "2030-01-01T12:00:00.000000Z"


@requirement(
    "anthropic:sdk:create-store", "anthropic:sdk:base-url", "anthropic:stores:fields",
    "anthropic:fields", "anthropic:ids",
)  # fmt: skip
def test_a_store_is_made_with_what_was_said_and_nothing_else(service: Service) -> None:
    made = service.http.post(
        STORES, json={"name": "notes", "description": "of Ada", "metadata": {"user": "ada"}}
    )

    assert made.status_code == 200
    assert made.json() == {
        "id": made.json()["id"], "type": "memory_store", "name": "notes", "description": "of Ada",
        "metadata": {"user": "ada"}, "created_at": NOON, "updated_at": NOON, "archived_at": None,
    }  # fmt: skip
    kind, _, digits = made.json()["id"].partition("_")
    assert (kind, len(digits), int(digits, 16) > 0) == ("memstore", 32, True)


@requirement("anthropic:sdk:get-store", "anthropic:stores:limits", "anthropic:metadata:limits")
def test_a_store_needs_only_a_name_and_is_found_again_up_to_its_limits(
    sdk: anthropic.Anthropic,
) -> None:
    one, other = store(sdk, "notes"), store(sdk, "notes")

    assert one.id != other.id
    assert (one.name, one.description, one.metadata, one.archived_at) == ("notes", "", {}, None)

    made = store(sdk)

    assert sdk.beta.memory_stores.retrieve(made.id) == made

    pairs = {"é" * 63 + "abcdefghijklmnop"[n]: "ü" * 512 for n in range(16)}

    made = sdk.beta.memory_stores.create(name="é" * 255, description="ü" * 1024, metadata=pairs)

    assert (len(made.name), len(made.description), made.metadata) == (255, 1024, pairs)

    assert store(sdk, "  Ada's  notes ").name == "  Ada's  notes "


LIMITS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name: String should have at least 1 character"),
    ({"name": "n" * 256}, "name: String should have at most 255 characters"),
    (
        {"name": " \u2003"},
        "name: String should have more than white space and no control characters",
    ),
    ({"name": "a\nb"}, "name: String should have more than white space and no control characters"),
    ({"name": 7}, "name: Input should be a valid string"),
    ({"description": "d" * 1025}, "description: String should have at most 1024 characters"),
    ({"description": "a\0"}, "description: String should have no NUL"),
    ({"description": ["d"]}, "description: Input should be a valid string"),
    ({"metadata": []}, "metadata: Input should be an object"),
    ({"metadata": {"k" * 65: "v"}}, "metadata: String should have at most 64 characters"),
    ({"metadata": {"": "v"}}, "metadata: String should have at least 1 character"),
    ({"metadata": {"k": "v" * 513}}, "metadata: String should have at most 512 characters"),
    ({"metadata": {"k": 1}}, "metadata: Input should be a valid string"),
    ({"metadata": {"k": "\0"}}, "metadata: String should have no NUL"),
    ({"metadata": {"a\0": "v"}}, "metadata: String should have no NUL"),
]


@pytest.mark.representative(2)
@pytest.mark.parametrize(("fields", "sentence"), LIMITS)
@requirement("anthropic:stores:limits", "anthropic:metadata:limits")
def test_what_is_over_a_limit_is_refused_of_a_new_store_and_of_a_change(
    service: Service, sdk: anthropic.Anthropic, fields: dict[str, Any], sentence: str
) -> None:
    held = store(sdk)

    made = service.http.post(STORES, json={"name": "n", **fields})
    changed = service.http.post(f"{STORES}/{held.id}", json=fields)

    error = {"type": "invalid_request_error", "message": sentence}
    assert [(one.status_code, one.json()["error"]) for one in (made, changed)] == [(400, error)] * 2
    assert list(sdk.beta.memory_stores.list()) == [held]


@for_each(
    "body, sentence",
    [
        ({}, "name: Field required"), ({"name": None}, "name: Field required"),
        ({"name": "n", "metadata": {str(n): "v" for n in range(17)}},
         "metadata: Object should have at most 16 members"),
        ({"name": "n", "metadata": {"k": None}}, "metadata: Input should be a valid string"),
        ({"name": 1, "description": 2, "metadata": {"hunter2": 3, "hunter3": 4}},
         "name: {}; description: {}; metadata: {}".format(*["Input should be a valid string"] * 3)),
    ],
)  # fmt: skip
@requirement("anthropic:stores:limits", "anthropic:metadata:limits")
def test_a_new_store_has_a_name_and_at_most_sixteen_pairs_of_texts(
    service: Service, body: dict[str, Any], sentence: str
) -> None:
    answer = service.http.post(STORES, json=body)

    assert (answer.status_code, answer.json()["error"]["message"]) == (400, sentence)


@requirement("anthropic:sdk:update-store", "anthropic:metadata:patch")
def test_a_change_sets_what_it_says_and_keeps_the_rest(
    service: Service, sdk: anthropic.Anthropic
) -> None:
    made = sdk.beta.memory_stores.create(
        name="notes", description="of Ada", metadata={"a": "1", "b": "2", "c": "3"}
    )
    service.clock.advance(minutes=1)

    changed = sdk.beta.memory_stores.update(
        made.id, name="diary", metadata={"b": None, "c": "4", "d": "5", "never": None}
    )

    expected = made.model_copy(
        update={
            "name": "diary",
            "metadata": {"a": "1", "c": "4", "d": "5"},
            "updated_at": START + timedelta(minutes=1),
        }
    )
    assert changed == expected == sdk.beta.memory_stores.retrieve(made.id)


def test_a_change_of_nothing_leaves_no_trace(service: Service, sdk: anthropic.Anthropic) -> None:
    stores = sdk.beta.memory_stores
    made = stores.create(name="notes", description="of Ada", metadata={"a": "1"})
    service.clock.advance(minutes=1)

    same = stores.update(made.id, name="notes", metadata={"a": "1", "b": None})
    nulls = stores.update(made.id, description=None, name=None, metadata=None)
    bodiless = service.http.post(f"{STORES}/{made.id}")

    assert same == nulls == made
    assert bodiless.json()["updated_at"] == NOON
    assert stores.update(made.id, description="").description == ""


@requirement("anthropic:metadata:patch", "anthropic:metadata:limits")
def test_a_patch_may_turn_over_all_pairs_and_leave_no_more_than_sixteen(
    sdk: anthropic.Anthropic,
) -> None:
    old, new = ({f"{word}{n}": word for n in range(16)} for word in ("old", "new"))
    made = sdk.beta.memory_stores.create(name="notes", metadata=old)

    over = refusal(lambda: sdk.beta.memory_stores.update(made.id, metadata={"one more": "1"}))
    turned = sdk.beta.memory_stores.update(made.id, metadata={**dict.fromkeys(old), **new})
    many = refusal(
        lambda: sdk.beta.memory_stores.update(made.id, metadata=dict.fromkeys(map(str, range(33))))
    )

    assert over["message"] == "metadata has at most 16 pairs."
    assert turned.metadata == new
    assert many["message"] == "metadata: Object should have at most 32 members"


@requirement("anthropic:sdk:list-stores", "anthropic:times")
def test_stores_are_listed_by_the_instants_of_their_making(
    service: Service, sdk: anthropic.Anthropic
) -> None:
    made = []
    for _ in range(4):
        made.append(store(sdk))
        service.clock.advance(hours=1)
    second, third = made[1].created_at, made[2].created_at

    def listed(**bounds: datetime | str) -> list[str]:
        return [one.id for one in sdk.beta.memory_stores.list(**bounds)]  # type: ignore[arg-type]

    assert listed(created_at_gte=second, created_at_lte=third) == [made[2].id, made[1].id]
    assert listed(created_at_gte=third.astimezone(UTC).isoformat()) == [made[3].id, made[2].id]
    assert listed(created_at_gte=third, created_at_lte=second) == []
    for same in (  # an instant without an offset is in UTC
        second.replace(tzinfo=None), "2030-01-01t13:00:00z", "2030-01-01 13:00:00",
        "2030-01-01T15:00:00+02:00",
    ):  # fmt: skip
        assert listed(created_at_gte=same, created_at_lte=same) == [made[1].id]
    unescaped = service.http.get(f"{STORES}?created_at[lte]=2030-01-01T14:00:00+02:00")
    assert [it["id"] for it in unescaped.json()["data"]] == [made[0].id]


@requirement("anthropic:sdk:archive-store", "anthropic:stores:archived-twice")
def test_a_store_is_archived_once_and_for_good(service: Service, sdk: anthropic.Anthropic) -> None:
    made, other = store(sdk), store(sdk)
    service.clock.advance(minutes=1)
    at = START + timedelta(minutes=1)

    archived = sdk.beta.memory_stores.archive(made.id)
    service.clock.advance(minutes=1)

    assert archived == made.model_copy(update={"archived_at": at, "updated_at": at})
    assert sdk.beta.memory_stores.archive(made.id) == archived
    assert sdk.beta.memory_stores.retrieve(made.id) == archived
    assert list(sdk.beta.memory_stores.list()) == [other]
    assert list(sdk.beta.memory_stores.list(include_archived=True)) == [other, archived]
    for bad in ("x", "", "1", "0", "yes"):
        assert service.http.get(STORES, params={"include_archived": bad}).status_code == 400


@requirement("anthropic:sdk:list-stores")
def test_the_first_of_repeated_parameters_counts(
    service: Service, sdk: anthropic.Anthropic
) -> None:
    one, archived = store(sdk), store(sdk)
    sdk.beta.memory_stores.archive(archived.id)

    def listed(query: str) -> list[str]:
        return [item["id"] for item in service.http.get(f"{STORES}?{query}").json()["data"]]

    assert listed("include_archived=true&include_archived=false") == [archived.id, one.id]
    assert listed("include_archived=True&include_archived=x") == [archived.id, one.id]
    assert listed("include_archived=false&include_archived=true") == [one.id]
    assert listed("include_archived=true&limit=1&limit=x") == [archived.id]
    assert service.http.get(f"{STORES}?limit=x&limit=1").status_code == 400


@requirement("anthropic:stores:archived")
def test_an_archived_store_takes_no_change_and_gives_up_what_is_in_it(
    sdk: anthropic.Anthropic,
) -> None:
    made = store(sdk)
    kept, going = memory(sdk, made, "/kept"), memory(sdk, made, "/going")
    memories, history = sdk.beta.memory_stores.memories, sdk.beta.memory_stores.memory_versions
    memories.update(kept.id, memory_store_id=made.id, content="newer")
    first = versions(sdk, made, memory_id=kept.id)[-1]
    sdk.beta.memory_stores.archive(made.id)

    refused = [
        refusal(lambda: sdk.beta.memory_stores.update(made.id, name="other")),
        refusal(lambda: memory(sdk, made, "/more")),
        refusal(lambda: memories.update(kept.id, memory_store_id=made.id, content="newest")),
    ]

    assert {error["type"] for error in refused} == {"invalid_request_error"}
    assert {error["message"] for error in refused} == {
        "The memory store is archived and read-only."
    }
    assert paths(sdk, made) == ["/going", "/kept"]
    memories.delete(going.id, memory_store_id=made.id)
    assert history.redact(first.id, memory_store_id=made.id).redacted_at
    assert paths(sdk, made) == ["/kept"]
    assert sdk.beta.memory_stores.delete(made.id).id == made.id
