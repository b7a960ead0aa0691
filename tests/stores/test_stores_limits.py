"""What may be written to stores and entries: just within a limit, just over it, and no text."""

import hashlib
import json
from itertools import chain

import httpx
import pytest

from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, lasting as service
from ..support.store_dialects import ANTHROPIC, CLOUD, Dialect, in_both
from ..support.stores import STORES, Object, Refused, at, entry, ids, ok, store

__all__ = ["service"]

INVALID = "invalid_request_error"
SIGNS = ("x", "\u00e9", "\u4f1a", "\U0001f332")
MOST_PATH, MOST_CONTENT = 1024, 102_400  # bytes


def filled(sign: str, size: int) -> str:
    """A text of so many bytes."""
    width = len(sign.encode())
    return sign * (size // width) + "x" * (size % width)


def sent(http: httpx.Client, method: str, path: str, body: object) -> httpx.Response:
    return http.request(method, path, content=json.dumps(body).encode())


PATHS = [
    "a", "a b", ".hidden", "a.b/c-d", "a c/c", "%2e%2e/%00", "C:\\x", "\u4f1a/\u8bae.md", "a.",
    "/".join("bcdefghijklmnopqrstu"), "mem_1", "*?[a]", "\U0001f44d\U0001f3fd",
]  # fmt: skip


@requirement(
    "stores:path:bytes", "stores:path:segments", "anthropic:paths:rules", "anthropic:paths:dots",
)  # fmt: skip
@in_both
def test_a_plain_path_is_kept_to_the_letter(service: Service, dialect: Dialect) -> None:
    entries = dialect.at(store(service.http), "memories")
    longest = [filled(sign, MOST_PATH - len(dialect.slash)) for sign in SIGNS]
    for path in (*PATHS, *longest, *(["..a", "a..b/c"] if dialect is ANTHROPIC else [])):
        named = {"path": dialect.slash + path}
        made = service.http.post(entries, json=named | {"content": "x"})
        assert made.is_success, made.text
        assert ok(service.http.get(f"{entries}/{made.json()['id']}"))["path"] == named["path"]


@requirement(
    "stores:entry:hash", "stores:content:raw", "stores:decided:100-kb", "anthropic:content:limits",
)  # fmt: skip
@in_both
def test_a_content_is_kept_and_counted_as_its_bytes(service: Service, dialect: Dialect) -> None:
    contents = ["  x \n", "e\u0301", "\ufeffa\r\n\x01", *(filled(it, MOST_CONTENT) for it in SIGNS)]
    for content in (*contents, *(["", " "] if dialect is ANTHROPIC else [])):
        entries = dialect.at(store(service.http), "memories")
        body = {"path": f"{dialect.slash}a", "content": content}
        made = service.http.post(entries, json=body).json()
        read, raw = ok(service.http.get(f"{entries}/{made['id']}")), content.encode()
        assert read["content"] == content
        assert read["size" if dialect is CLOUD else "content_size_bytes"] == len(raw)
        assert made["content_sha256"] == read["content_sha256"] == hashlib.sha256(raw).hexdigest()


SEGMENT = "No segment of path may be empty, '.' or '..'."
CONTROL = "path must not contain control characters."
TEXT, PRINTABLE = (
    "Input should be a valid string",
    "more than white space and no control characters",
)
PAIR = "Field 'metadata' has a key or value that"
NO_NUL = "cannot contain NUL or a lone surrogate"
MANY = {f"k{n}": "v" for n in range(17)}
Wrongs = dict[str, tuple[str, list[object]]]


def no_texts(*fields: str) -> Wrongs:
    """What no stored text may be, of each field."""
    return {f"Field '{it}' {NO_NUL}.": (it, ["a\0b"]) for it in fields}


# What is wrong with fields of bodies, by the sentence that says so.
OF_STORES: dict[str, Wrongs] = {
    "cloud": {
        **no_texts("name", "description"),
        "Missing required field: name": ("name", [None, "", " \n\t\u00a0"]),
        "Field 'name' has a lone surrogate, which UTF-8 cannot encode.": ("name", ["a\ud800b"]),
        "Field 'name' must have at most 64 characters.": ("name", [it * 65 for it in SIGNS]),
        "Field 'name' must be text.": ("name", [7, ["a"], True]),
        "Field 'description' must have at most 1,024 characters.": (
            "description", [it * 1025 for it in SIGNS]
        ),
        "Field 'description' must be text.": ("description", [7, {}]),
        "Field 'metadata' must be an object.": ("metadata", [[], "a"]),
        f"{PAIR} must be text.": ("metadata", [{"a": 1}, {"a": None}, {"a": {"b": "c"}}]),
        "Field 'metadata' must have at most 16 pairs.": ("metadata", [MANY]),
        f"{PAIR} must have at most 64 characters.": ("metadata", [{"\u4f1a" * 65: "v"}]),
        f"{PAIR} must have at most 512 characters.": ("metadata", [{"k": "\u4f1a" * 513}]),
        f"{PAIR} {NO_NUL}.": ("metadata", [{"k": "a\0b"}, {"a\0b": "v"}]),
    },
    "anthropic": {
        "name: String should have at least 1 character": ("name", [""]),
        "name: String should have at most 255 characters": ("name", ["n" * 256]),
        f"name: String should have {PRINTABLE}": ("name", [" \u2003", "a\nb"]),
        f"name: {TEXT}": ("name", [7]),
        "description: String should have at most 1024 characters": ("description", ["d" * 1025]),
        f"description: {NO_NUL}": ("description", ["a\0"]),
        f"description: {TEXT}": ("description", [["d"]]),
        "metadata: Input should be an object": ("metadata", [[]]),
        "metadata: String should have at most 64 characters": ("metadata", [{"k" * 65: "v"}]),
        "metadata: String should have at least 1 character": ("metadata", [{"": "v"}]),
        "metadata: String should have at most 512 characters": ("metadata", [{"k": "v" * 513}]),
        f"metadata: {TEXT}": ("metadata", [{"k": 1}, {"hunter2": 3, "hunter3": 4}]),
        f"metadata: {NO_NUL}": ("metadata", [{"k": "\0"}, {"a\0": "v"}]),
    },
}  # fmt: skip
OF_NEW_STORES: Wrongs = {  # and not of a change
    "name: Field required": ("name", [None]),
    "metadata: must have at most 16 pairs": ("metadata", [MANY]),
    f"metadata: {TEXT}": ("metadata", [{"k": None}]),
}
OF_ENTRIES: dict[str, Wrongs] = {
    "cloud": {
        **no_texts("path", "content"),
        "Field 'path' must be a relative path (cannot start with '/').": (
            "path", ["/x", "/", "//", "/../x"]
        ),
        "Field 'path' cannot contain '..'.": (
            "path", ["..", "../a", "a/..", "a/../b", "a..b", "a..."]
        ),
        SEGMENT: ("path", ["", "a//b", "a/", "./a", "a/./b", ".", "a/."]),
        CONTROL: ("path", ["a\nb", "a\x7fb", "a\x85b", "a\tb"]),
        "path has at most 20 segments.": ("path", ["/".join("a" * 21)]),
        "path has at most 1,024 bytes.": ("path", [filled(it, MOST_PATH) + "x" for it in SIGNS]),
        "Field 'path' must be text.": ("path", [1, ["a"]]),
        "Missing required field: path": ("path", [None]),
        "Missing required field: content": ("content", [None]),
        "Field 'content' cannot be blank.": ("content", ["", " ", "\n\t \u3000"]),
        "Field 'content' must be text.": ("content", [1, {"a": "b"}]),
        "Field 'content' must be at most 102,400 bytes.": (
            "content", [filled(it, MOST_CONTENT) + "x" for it in SIGNS]
        ),
        "Field 'metadata' must be an object.": ("metadata", [["a"]]),
        f"{PAIR} must be text.": ("metadata", [{"a": 1}]),
    },
    "anthropic": {
        "path: String should match pattern '^/'": ("path", ["a", ""]),
        SEGMENT: ("path", ["/", "//a", "/a//b", "/a/", "/./a", "/a/.."]),
        "path has at most 20 segments.": ("path", ["/" + "/".join("a" * 21)]),
        "path: String should have at most 1024 characters": ("path", ["/" + "x" * 1024]),
        "path: it must have at most 1,024 bytes, including the leading '/'": (
            "path", ["/" + "\u00e9" * 512]
        ),
        "path: it must be in Unicode's normalization form C": ("path", ["/e\u0301"]),
        CONTROL: ("path", ["/a\0", "/a\n", "/\x7f", "/\x85"]),
        "path: it must not contain format characters, U+2028 or U+2029": (
            "path", ["/a\u200b", "/\u202ea", "/a\u2028b", "/a\u2029b", "/\U000e0001"]
        ),
        f"path: {TEXT}": ("path", [7]),
        "content: String should have at most 102400 characters": ("content", ["a" * 102_401]),
        "content has at most 102,400 bytes.": ("content", ["\u00e9" * 51_200 + "a"]),
        f"content: {NO_NUL}": ("content", ["a\0b"]),
        f"content: {TEXT}": ("content", [1, True, ["a"]]),
    },
}  # fmt: skip
OF_NEW_ENTRIES: Wrongs = {
    "path: Field required": ("path", [None]), "content: Field required": ("content", [None]),
}  # fmt: skip


@requirement(
    "stores:create:name-missing", "stores:store:limits", "stores:metadata:limits",
    "stores:path:relative", "stores:path:dots", "stores:path:segments", "stores:path:bytes",
    "stores:content:required", "stores:content:blank", "stores:content:exact", "stores:error:400",
    "stores:error:param", "stores:decided:100-kb", "anthropic:stores:limits",
    "anthropic:metadata:limits", "anthropic:paths:rules", "anthropic:paths:dots",
    "anthropic:content:limits", "anthropic:body:strict",
)  # fmt: skip
@pytest.mark.parametrize("place", ["a store", "its change", "an entry", "the entry's change"])
@in_both
def test_what_is_over_a_limit_is_refused_of_what_is_new_and_of_a_change(
    service: Service, dialect: Dialect, place: str
) -> None:
    http, home = service.http, store(service.http)
    made, known = entry(http, home, "there"), ids(http.get(STORES))
    entries, is_ours = dialect.at(home, "memories"), dialect is CLOUD
    of_stores, of_entries = OF_STORES[dialect.name], OF_ENTRIES[dialect.name]
    method, path, body, wrongs = {
        "a store": ("POST", dialect.stores, {"name": "a"}, [of_stores, OF_NEW_STORES]),
        "its change": ("POST", dialect.at(home), {}, [of_stores, {}]),
        "an entry": ("POST", entries, {"path": f"{dialect.slash}a", "content": "b"},
                     [of_entries, OF_NEW_ENTRIES]),
        "the entry's change": ("PUT" if is_ours else "POST", f"{entries}/{made['id']}",
                               {"content": "b"} if is_ours else {}, [of_entries, {}]),
    }[place]  # fmt: skip
    if is_ours:  # which has no changes of stores
        wrongs = [] if place == "its change" else wrongs[:1]
    for sentence, (field, values) in chain.from_iterable(it.items() for it in wrongs):
        if method == "PUT" and field == "path":
            continue  # which it ignores
        for value in values:
            told = dialect.refusal(sent(http, method, path, body | {field: value}))
            param = field if is_ours and sentence.startswith(("Field", "Missing")) else None
            assert told == Refused(400, INVALID, sentence, param), (field, value)

    if not is_ours:
        several = dialect.refusal(sent(http, "POST", dialect.stores, {"name": 1, "description": 2}))
        assert several.message == f"name: {TEXT}; description: {TEXT}"
    assert ok(http.get(at(home))) == home | {"entry_count": 1, "total_size": len("Hello world")}
    assert ok(http.get(f"{at(home, 'memories')}/{made['id']}")) == made
    assert ids(http.get(STORES)) == known


@requirement("stores:store:limits", "stores:secrets")
def test_no_name_grows_by_what_stands_for_its_secrets(service: Service) -> None:
    text = "postgres://a:b1C2d3@c " * 3
    answer = service.http.post(STORES, json={"name": text[:64]})

    assert answer.headers["x-redacted"] == "3"
    assert len(ok(answer, 201)["name"]) == 64


@requirement("stores:store:limits", "stores:metadata:limits")
@for_each("sign", SIGNS)
def test_what_is_just_within_a_limit_is_taken(service: Service, home: Object, sign: str) -> None:
    pairs = {sign * 63 + "abcdefghijklmnop"[n]: sign * 512 for n in range(16)} | {"": ""}
    del pairs[sign * 63 + "a"]
    for method, path, body in [
        ("POST", STORES, {"name": f"  {sign * 64}\n", "description": f" {sign * 1024} "}),
        ("POST", at(home, "memories"), {"path": sign, "content": "b"}),
        ("PUT", f"{at(home, 'memories')}/{entry(service.http, home, f'of {sign}')['id']}",
         {"content": "b"}),
    ]:  # fmt: skip
        made = service.http.request(method, path, json={**body, "metadata": pairs}).json()
        assert made["metadata"] == pairs
        if "name" in body:
            assert (made["name"], made["description"]) == (sign * 64, sign * 1024)


@requirement("stores:content:exact", "anthropic:body:strict")
@in_both
def test_bytes_that_are_no_text_are_refused(service: Service, dialect: Dialect) -> None:
    home = store(service.http)
    entries = dialect.at(home, "memories")
    made = entry(service.http, home, "there")
    update = "PUT" if dialect is CLOUD else "POST"
    for bytes_ in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"):
        for method, path in [("POST", entries), (update, f"{entries}/{made['id']}")]:
            body = b'{"path": "a", "content": "' + bytes_ + b'"}'
            told = dialect.refusal(service.http.request(method, path, content=body))
            assert told == (400, INVALID, "invalid JSON: no UTF-8 at byte 26.", None)
        long = b'{"name": "' + b"x" * 70_000 + bytes_ + b'"}'
        told = dialect.refusal(service.http.post(dialect.stores, content=long))
        assert told.message.endswith("at byte 70010.")
    for body in (rb'{"path": "/a", "content": "\ud800"}', rb'{"path": "/\udfff", "content": "x"}'):
        assert dialect.refusal(service.http.post(entries, content=body)).status == 400
    assert ok(service.http.get(at(home)))["entry_count"] == 1
