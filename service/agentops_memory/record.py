"""The base of a noun's one type: what rules read, what a row becomes, and the JSON on the wire."""

from datetime import datetime
from functools import cache
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel


class Record(BaseModel):
    """A noun as it is stored and answered: immutable, and without the fields that have no value.

    A field that no client sees is declared with `Field(exclude=True)`.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        val_json_bytes="hex",
        defer_build=True,  # until first used: a start would take a fifth longer
    )

    @classmethod
    def whole(cls, **fields: Any) -> Self:
        """One of fields that are what they should be, unchecked, in any order.

        For 21 fields `model_construct` takes 9 µs, this 4.
        """
        made, put = cls.__new__(cls), object.__setattr__
        put(made, "__dict__", {**_defaults(cls), **fields})
        put(made, "__pydantic_fields_set__", set(fields))
        put(made, "__pydantic_extra__", None)
        put(made, "__pydantic_private__", None)
        return made

    def json_bytes(self) -> bytes:
        """As it is sent."""
        return self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True)


@cache
def _defaults(of: type[Record]) -> dict[str, Any]:
    """Each field by its default, in the order in which they are sent."""
    return {name: it.default for name, it in of.__pydantic_fields__.items()}


class CamelRecord(Record):
    """A record whose names are camelCase on the wire."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


def milliseconds(at: datetime) -> str:
    """The instant in RFC 3339, in UTC, in whole milliseconds."""
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


Milliseconds = Annotated[
    datetime,
    PlainSerializer(milliseconds),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An instant that is sent in whole milliseconds."""


def microseconds(at: datetime) -> str:
    """The instant in RFC 3339, in UTC, in whole microseconds."""
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


Microseconds = Annotated[
    datetime,
    PlainSerializer(microseconds),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An instant that is sent in whole microseconds."""
