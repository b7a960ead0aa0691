"""What the page makes of a schema, and of any text."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentops_memory.http.docs_page.markup import prose, tag, told

from ..support.shown import Shown
from .test_page import PAIRS


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string", "minLength": 1, "maxLength": 5000}, "string (1 to 5,000 characters)"),
        ({"type": "string", "pattern": "^<a>$"}, "string (matching ^<a>$)"),
        ({"type": "string", "format": "date-time"}, "string (date-time)"),
        ({"type": "integer", "minimum": 1}, "integer (1 or more)"),
        ({"type": "integer", "maximum": 0}, "integer (at most 0)"),
        ({"type": ["integer", "null"]}, "integer or null"),
        ({"type": "string", "enum": ["a", "<b>"]}, 'one of "a", "<b>"'),
        ({"type": "boolean", "const": True}, "only true"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        (
            {"type": "array", "maxItems": 20, "items": {"$ref": "#/components/schemas/Thing"}},
            "list (at most 20 items) of Thing",
        ),
        (
            {
                "type": "object",
                "maxProperties": 16,
                "propertyNames": {"maxLength": 64},
                "additionalProperties": {"type": "string", "maxLength": 512},
            },
            PAIRS,
        ),
        ({"type": "object", "additionalProperties": False}, "object (nothing else)"),
        ({"type": "integer", "multipleOf": 3}, "integer (multipleOf 3)"),
        ({}, "anything"),
    ],
)
def test_a_schema_is_told_in_words(schema: dict[str, Any], text: str) -> None:
    assert Shown(told(schema)).text == text


@example("`a` <b>")
@example("a ` <b>")
@settings(max_examples=25)
@given(st.text())
def test_any_text_is_read_as_it_was_written(text: str) -> None:
    read = Shown(tag("p", text, prose(text), title=text))

    is_plain = text.count("`") % 2
    assert read.text == text + (text if is_plain else text.replace("`", ""))
    assert read.elements[0] == ("p", {"title": text})
