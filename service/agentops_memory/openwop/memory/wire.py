"""What wires of other nouns share."""

from typing import Any

from ...record import milliseconds

rendered = milliseconds

JsonObject = dict[str, Any]


def present(members: JsonObject) -> JsonObject:
    """The members that have a value: what has none is absent."""
    return {name: value for name, value in members.items() if value is not None}
