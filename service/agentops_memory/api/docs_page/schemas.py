"""JSON schemas in words, with links to those that have a name."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .markup import Markup, code, joined, prose, tag

Schema = Mapping[str, Any]

_KINDS = {"array": "list"}
_RANGES = (
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
    ("minProperties", "maxProperties", " pairs"),
    ("minimum", "maximum", ""),
)
_TOLD = {
    "$ref", "additionalProperties", "anyOf", "const", "default", "description", "enum", "format",
    "items", "pattern", "properties", "propertyNames", "required", "title", "type",
    *(limit for low, high, _ in _RANGES for limit in (low, high)),
}  # fmt: skip


def told(schema: Schema) -> Markup:
    """Which values a schema takes: their kind, their limits, what is in them."""
    return joined(_kind(schema), _within(_limits(schema)), _inside(schema))


def row(name: Markup, schema: Schema, *, is_required: bool, says: str = "") -> Markup:
    """What a parameter or a field is called and takes."""
    need = "required" if is_required else "optional"
    return tag(
        "div",
        tag("dt", name, " ", tag("span", need, class_=need)),
        tag("dd", told(schema), *_default(schema), *_described(says)),
    )


def fields(schema: Schema) -> Markup:
    """The fields of an object; of any other schema, which values it takes."""
    if "properties" not in schema:
        return tag("p", told(schema))
    required = schema.get("required", ())
    rows = (
        row(code(name), field, is_required=name in required, says=field.get("description", ""))
        for name, field in schema["properties"].items()
    )
    limits = joined(*_limits(schema), by=", ")
    return joined(*([tag("p", limits)] if limits else []), tag("dl", *rows))


def name_of(reference: str) -> str:
    """The name of a schema that is referred to."""
    return reference.removeprefix("#/components/schemas/")


def link(name: str) -> Markup:
    """The way to a schema that has a name."""
    return tag("a", name, href=f"#schema-{name}")


def _kind(schema: Schema) -> Markup:
    if "$ref" in schema:
        return link(name_of(schema["$ref"]))
    if "anyOf" in schema:
        return joined(*map(told, schema["anyOf"]), by=" or ")
    if "const" in schema:
        return joined("only ", _json(schema["const"]))
    if "enum" in schema:
        return joined("one of ", joined(*map(_json, schema["enum"]), by=", "))
    types = schema.get("type", "anything")
    names = [types] if isinstance(types, str) else types
    return joined(*(_KINDS.get(name, name) for name in names), by=" or ")


def _limits(schema: Schema) -> Iterator[Markup]:
    if "format" in schema:
        yield joined(schema["format"])
    for low, high, unit in _RANGES:
        if low in schema or high in schema:
            yield joined(_range(schema.get(low), schema.get(high)), unit)
    if "pattern" in schema:
        yield joined("matching ", code(schema["pattern"]))
    if "propertyNames" in schema:
        yield joined("names of ", joined(*_limits(schema["propertyNames"]), by=", "))
    if schema.get("additionalProperties") is False:
        yield joined("nothing else")
    for keyword in schema:
        if keyword not in _TOLD:
            yield joined(keyword, " ", _json(schema[keyword]))


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return f"at most {high:,}"
    return f"{low:,} or more" if high is None else f"{low:,} to {high:,}"


def _within(limits: Iterator[Markup]) -> Markup:
    every = joined(*limits, by=", ")
    return joined(" (", every, ")") if every else every


def _inside(schema: Schema) -> Markup:
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), Mapping):
            return joined(" of ", told(schema[keyword]))
    return joined()


def _default(schema: Schema) -> Iterator[Markup]:
    if schema.get("default") is not None:  # null is what any optional one may be left as
        yield joined("; ", _json(schema["default"]), " unless told")


def _described(says: str) -> Iterator[Markup]:
    if says:
        yield tag("p", prose(says))


def _json(value: object) -> Markup:
    return code(json.dumps(value, ensure_ascii=False))
