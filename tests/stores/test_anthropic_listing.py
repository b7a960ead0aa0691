"""Lists of memories in the Anthropic dialect: order, prefixes, depth, pages."""

import base64
from itertools import product
from typing import Any

import anthropic
import pytest
from anthropic.types.beta import BetaManagedAgentsMemoryStore as Store

from ..support.anthropic_sdk import STORES, client, memory, paths, sdk, store
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, lasting as service

__all__ = ["sdk", "service"]

# In the order of their bytes: a slash comes after a dot and before a digit.
TREE = ["/B", "/a.md", "/a/1", "/a/b/2", "/a/b/c/3", "/a/z", "/a0", "/ab/4", "/é", "/日"]


@pytest.fixture(scope="module")
def notes(service: Service) -> Store:
    """A store with a tree of memories, which no test changes."""
    with client(service) as sdk:
        return planted(sdk)


def planted(sdk: anthropic.Anthropic) -> Store:
    """A new store with the tree, made in no order."""
    notes = store(sdk)
    for path in sorted(TREE, key=lambda path: path[::-1]):
        memory(sdk, notes, path, f"content of {path}")
    return notes


@requirement("anthropic:sdk:list-memories", "anthropic:listing:order", "anthropic:view")
def test_memories_are_listed_in_the_order_of_their_paths(
    sdk: anthropic.Anthropic, notes: Store
) -> None:
    memories = sdk.beta.memory_stores.memories

    listed = memories.list(notes.id)

    assert [item.path for item in listed] == TREE
    for item in listed:
        assert item.type == "memory"
        assert item == memories.retrieve(item.id, memory_store_id=notes.id, view="basic")
    full = memories.list(notes.id, view="full")
    assert [item.content for item in full if item.type == "memory"] == [
        f"content of {path}" for path in TREE
    ]


@requirement("anthropic:view")
def test_a_long_page_has_every_content_whole(sdk: anthropic.Anthropic, service: Service) -> None:
    notes = store(sdk)
    contents = {f"/{number}": f'{number} "é" ' * 14_000 for number in range(4)}
    for path, content in contents.items():
        memory(sdk, notes, path, content)

    answer = service.http.get(f"{STORES}/{notes.id}/memories", params={"view": "full"})

    items = answer.json()["data"]
    assert {item["path"]: item["content"] for item in items} == contents
    assert list(answer.json()) == ["data", "next_page"]
    assert answer.headers["request-id"].startswith("req_")


@for_each("prefix", ["/", "/a/", "/a/b/", "/A/", "/B/", "/é/", "/%/", "/_/", "//", "/a//", "/a/z/"])
@requirement("anthropic:listing:prefix")
def test_a_prefix_is_a_folder(sdk: anthropic.Anthropic, notes: Store, prefix: str) -> None:
    assert paths(sdk, notes, path_prefix=prefix) == [p for p in TREE if p.startswith(prefix)]


@for_each(
    "name, value, rule",
    [
        *(("path_prefix", it, "begin and end with '/'") for it in ["", "a", "a/", "/a", "/a/b"]),
        *(("depth", it, "be 0 or 1") for it in ["", "2", "-1", "x", "01", "1.0"]),
    ],
)
@requirement("anthropic:listing:prefix", "anthropic:listing:depth")
def test_any_other_prefix_or_depth_is_refused(
    service: Service, notes: Store, name: str, value: str, rule: str
) -> None:
    answer = service.http.get(f"{STORES}/{notes.id}/memories", params={name: value})

    sentence = f"{name}: it must {rule}."
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, sentence)


@for_each(
    "prefix, expected",
    [
        ("/", ["/B", "/a.md", "/a/", "/a0", "/ab/", "/é", "/日"]),
        ("/a/", ["/a/1", "/a/b/", "/a/z"]), ("/a/b/", ["/a/b/2", "/a/b/c/"]),
        ("/a/b/c/", ["/a/b/c/3"]), ("/none/", []),
    ],
)  # fmt: skip
@requirement("anthropic:listing:depth")
def test_at_depth_one_what_lies_deeper_is_its_folder(
    sdk: anthropic.Anthropic, notes: Store, prefix: str, expected: list[str]
) -> None:
    listed = list(sdk.beta.memory_stores.memories.list(notes.id, path_prefix=prefix, depth=1))

    assert [item.path for item in listed] == expected
    assert [item.type for item in listed] == [
        "memory_prefix" if path.endswith("/") else "memory" for path in expected
    ]
    assert [item.model_dump() for item in listed if item.type == "memory_prefix"] == [
        {"path": path, "type": "memory_prefix"} for path in expected if path.endswith("/")
    ]


@pytest.mark.slow
@for_each("limit, depth, view", list(product([1, 2, 3, 10], [0, 1], ["basic", "full"])))
@requirement("anthropic:paging")
def test_pages_have_every_item_once(
    sdk: anthropic.Anthropic, notes: Store, limit: int, depth: int, view: Any
) -> None:
    listed = sdk.beta.memory_stores.memories.list
    whole = list(listed(notes.id, depth=depth, view=view, limit=20))

    pages = list(listed(notes.id, depth=depth, view=view, limit=limit).iter_pages())

    assert [item for page in pages for item in page.data] == whole
    assert [len(page.data) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert pages[-1].next_page is None


@requirement("anthropic:paging")
def test_a_cursor_stays_where_it_was_while_memories_come_and_go(sdk: anthropic.Anthropic) -> None:
    notes = planted(sdk)
    memories = sdk.beta.memory_stores.memories
    page, folders = memories.list(notes.id, limit=3), memories.list(notes.id, depth=1, limit=3)
    last = page.data[-1]
    assert last.type == "memory"
    assert folders.data[-1].path == "/a/"

    memories.delete(last.id, memory_store_id=notes.id)
    for path in ("/A", "/a/15", "/a/later"):
        memory(sdk, notes, path)

    following = page.get_next_page()
    assert [item.path for item in following][:3] == ["/a/15", *TREE[3:5]]
    assert folders.get_next_page().data[0].path == "/a0"  # behind all that is in the folder


def pages_of(service: Service, path: str, **asked: str) -> str:
    answer = service.http.get(path, params={"limit": "1", **asked}).json()
    cursor = answer["next_page"]
    assert isinstance(cursor, str)
    return cursor


@pytest.mark.slow
@requirement("anthropic:paging")
def test_a_cursor_of_another_list_is_refused(
    service: Service, sdk: anthropic.Anthropic, notes: Store
) -> None:
    other = store(sdk)
    memory(sdk, other, "/a")
    changed = memory(sdk, other, "/b")
    sdk.beta.memory_stores.memories.update(changed.id, memory_store_id=other.id, content="new")
    lists: list[tuple[str, dict[str, str]]] = [
        (STORES, {}),
        (STORES, {"include_archived": "true"}),
        (f"{STORES}/{notes.id}/memories", {}),
        (f"{STORES}/{notes.id}/memories", {"depth": "1"}),
        (f"{STORES}/{notes.id}/memories", {"path_prefix": "/a/"}),
        (f"{STORES}/{other.id}/memories", {}),
        (f"{STORES}/{notes.id}/memory_versions", {}),
        (f"{STORES}/{notes.id}/memory_versions", {"operation": "created"}),
        (f"{STORES}/{other.id}/memory_versions", {}),
        (f"{STORES}/{other.id}/memory_versions", {"memory_id": changed.id}),
        *(
            (path, {f"created_at[{end}]": "2030-01-01T12:00:00Z"})
            for path in (STORES, f"{STORES}/{notes.id}/memory_versions")
            for end in ("gte", "lte")
        ),
    ]

    cursors = [pages_of(service, path, **asked) for path, asked in lists]

    for (path, asked), *tried in zip(lists, cursors, [*cursors[1:], cursors[0]], strict=True):
        answers = [
            service.http.get(path, params={**asked, "page": cursor, "view": "full"})
            for cursor in tried
        ]
        assert [it.status_code for it in answers] == [200, 400], (path, asked)


@for_each("list_", ["", "/{}/memories", "/{}/memory_versions"])
@requirement("anthropic:paging")
def test_a_cursor_that_is_none_is_refused(
    service: Service, sdk: anthropic.Anthropic, notes: Store, list_: str
) -> None:
    path = STORES + list_.format(notes.id)
    store_cursor = pages_of(service, f"{STORES}/{notes.id}/memories")
    forged = base64.urlsafe_b64encode(bytes(8) + b"/a").decode()
    store(sdk)
    own = base64.urlsafe_b64decode(pages_of(service, path) + "===")
    moved = base64.urlsafe_b64encode(own[:-1] + b"~").decode().rstrip("=")
    bad = ["", "x", "!", "====", "é", "\0", "AAAA", store_cursor[:-1], store_cursor + "A",
           store_cursor.swapcase(), forged, moved, "A" * 9000, "1", notes.id]  # fmt: skip

    answers = [service.http.get(path, params={"page": page}) for page in bad]

    assert {(one.status_code, one.json()["error"]["message"]) for one in answers} == {
        (400, "page: it must be the next_page of an earlier page of the same list.")
    }


@pytest.mark.slow
@requirement("anthropic:paging", "anthropic:view")
def test_a_page_has_twenty_items_unless_more_are_asked_for_without_contents(
    sdk: anthropic.Anthropic,
) -> None:
    many = store(sdk)
    for number in range(21):
        memory(sdk, many, f"/{number:03}")
    for listed in (
        sdk.beta.memory_stores.memories.list,
        sdk.beta.memory_stores.memory_versions.list,
    ):
        assert len(listed(many.id).data) == 20
        assert len(listed(many.id, limit=100).data) == 21
        assert len(listed(many.id, limit=100, view="full").data) == 20
        assert len(listed(many.id, limit=7, view="full").data) == 7
        assert len(list(listed(many.id, limit=100, view="full"))) == 21
