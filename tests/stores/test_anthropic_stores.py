"""Memory stores of the Anthropic dialect: made, listed, changed, archived, deleted."""

from datetime import timedelta

import anthropic

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
    assert many["message"] == "metadata: must have at most 32 pairs"


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
