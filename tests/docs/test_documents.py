"""One set of rules for JSON, whether it is read whole or through a window."""

import io
import json

import pytest
from hypothesis import example, given, strategies as st

from agentops_memory.errors import Invalid
from agentops_memory.http import query as documents
from agentops_memory.http.query import MAX_ITEM, entries, parsed

from ..support.samples import examples, for_each

NAMES = ("sessions", "observations")
EXAMPLES = examples(150)

text = st.text(max_size=12)
fraction = st.floats(allow_nan=False, allow_infinity=False, width=32)
number = st.integers(-(10**20) + 1, 10**20 - 1) | fraction
values = st.recursive(
    st.none() | st.booleans() | number | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
)
whole = st.dictionaries(text | st.sampled_from(NAMES), values, max_size=4)
rendered = st.builds(
    lambda given, indent, ascii_: json.dumps(given, indent=indent, ensure_ascii=ascii_).encode(),
    whole, st.sampled_from([None, 0, 2]), st.booleans(),
)  # fmt: skip
mangled = st.builds(
    lambda given, at, part: given[:at] + part + given[at:],
    rendered, st.integers(0, 200),
    st.binary(max_size=2) | st.sampled_from([b"[", b"}", b",", b'"', b"\\"]),
)  # fmt: skip


@pytest.fixture(params=[1, 3, 64])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is moved by so few bytes that every value is cut somewhere."""
    monkeypatch.setattr(documents, "_CHUNK", request.param)


def read(body: bytes) -> list[tuple[str, int, object]]:
    return list(entries(io.BytesIO(body), NAMES))


def items(body: bytes) -> list[tuple[str, int, object]]:
    """What `entries` finds, of a body that is read whole."""
    members = parsed(body)
    if not isinstance(members, dict):
        raise Invalid("an object is expected")
    found = []
    for name, value in members.items():
        if name in NAMES and value is not None:
            if not isinstance(value, list):
                raise Invalid("must be a list")
            found += [(name, place, item) for place, item in enumerate(value)]
    return found


def outcome(of: object, body: bytes) -> object:
    assert callable(of)
    try:
        return of(body)
    except Invalid:
        return Invalid


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.usefixtures("window")
@EXAMPLES
@given(body=rendered | mangled)
@example(body=b'{"sessions": [1,]}')
@example(body=b'{"sessions": [],}')
@example(body=b'{"sessions": [tru]}')
@example(body=b'{"sessions": [1.5e+3, -0, "\xf0\x9f\x98\x80", "\xf0\x9f"]}')
@example(body=rb'{"sessions": ["\ud83d\ude00", "\ud83d", "\u00"]}')
def test_a_body_is_read_alike_whole_and_through_a_window(body: bytes) -> None:
    if body.count(b'"sessions"') < 2 and body.count(b'"observations"') < 2:
        assert outcome(read, body) == outcome(items, body)


@EXAMPLES
@given(value=values)
def test_json_is_read_as_the_standard_library_does(value: object) -> None:
    assert parsed(b" \n" + json.dumps(value).encode() + b"\t\r ") == value


@for_each("opening", ["[", '{"a":'])
def test_depth_is_counted_from_the_outermost_bracket_wherever_it_is_read(opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    for depth in (100, 101, 100_000):
        inner = f"[{opening * (depth - 2)}1{closing * (depth - 2)}]"
        for body in (f'{{"{name}": {inner}}}'.encode() for name in ("sessions", "extra")):
            found = [outcome(read, body) is Invalid, outcome(parsed, body) is Invalid]
            assert found == [depth > 100] * 2


def test_the_longest_item_is_read_and_a_longer_one_is_not() -> None:
    def body(length: int) -> bytes:
        return b'{"sessions": ["' + b"x" * (length - 2) + b'"]}'

    assert len(str(read(body(MAX_ITEM))[0][2])) == MAX_ITEM - 2
    for length in (MAX_ITEM + 1, 3 * MAX_ITEM):
        with pytest.raises(Invalid, match="one value is longer than 4,194,304 characters"):
            read(body(length))


def test_a_fault_is_found_where_it_is_and_not_at_the_end_of_the_file() -> None:
    file = io.BytesIO(b'{"sessions": [{x' + b" " * 10_000_000)

    with pytest.raises(Invalid, match="property name"):
        list(entries(file, NAMES))

    assert file.tell() < 1_000_000


def test_a_file_is_read_as_often_as_it_is_asked_for() -> None:
    file = io.BytesIO(b'{"sessions": [1, 2]}')

    assert list(entries(file, NAMES)) == list(entries(file, NAMES))
    assert list(entries(file, ("observations",))) == []


def test_an_exact_body_is_utf_8_and_read_as_any_other() -> None:
    for body in (b'{"a": "caf\xe9"}', b'{"a": "\xed\xa0\x80"}', b"\xff{}", b"{}\xc3"):
        with pytest.raises(Invalid, match="no UTF-8 at byte"):
            parsed(body, exact=True)
    body = '\ufeff{"a": "café", "b": "\\ud800"}'.encode()
    assert parsed(body, exact=True) == parsed(body) == {"a": "café", "b": "\ud800"}
