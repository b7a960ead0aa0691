"""What a page is built of: elements, and JSON schemas in words. All other text is escaped."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

Schema = Mapping[str, Any]

_EMPTY = frozenset({"meta", "wbr"})  # elements that hold nothing and have no end

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


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(element: str, /, *inside: str, **attributes: str) -> Markup:
    """An element. `class_` says what `class` does, and `aria_label` what `aria-label` does."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    end = "" if element in _EMPTY else f"</{element}>"
    return Markup(f"<{element}{said}>{joined(*inside)}{end}")


def joined(*parts: str, by: str = "") -> Markup:
    """The parts in a row; what is no markup is escaped."""
    return Markup(_escaped(by).join(map(_escaped, parts)))


def code(text: str) -> Markup:
    return tag("code", text)


def prose(text: str) -> Markup:
    """A sentence, in which backticks stand around code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is left over
        return joined(text)
    return joined(*(code(part) if at % 2 else part for at, part in enumerate(parts)))


def told(schema: Schema) -> Markup:
    limits = joined(*_limits(schema), by=", ")
    within = joined(" (", limits, ")") if limits else ""
    return joined(_kind(schema), within, *_inside(schema))


def need(*, is_required: bool) -> Markup:
    word = "required" if is_required else "optional"
    return tag("span", word, class_=word)


def row(name: Markup, schema: Schema, *, is_required: bool, says: str = "") -> Markup:
    takes: list[str] = [told(schema)]
    if schema.get("default") is not None:  # null is what any optional one may be left as
        takes += ["; ", _json(schema["default"]), " unless told"]
    if says:
        takes.append(tag("p", prose(says)))
    return tag("div", tag("dt", name, " ", need(is_required=is_required)), tag("dd", *takes))


def fields(schema: Schema) -> Markup:
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
    return reference.removeprefix("#/components/schemas/")


def link(name: str) -> Markup:
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
    return joined(*("list" if name == "array" else name for name in names), by=" or ")


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


def _inside(schema: Schema) -> Iterator[Markup]:
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), Mapping):
            yield joined(" of ", told(schema[keyword]))


def _json(value: object) -> Markup:
    return code(json.dumps(value, ensure_ascii=False))


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)
