"""What the page says of one operation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from .examples import curl
from .markup import Markup, code, joined, prose, tag
from .schemas import Schema, fields, name_of, row, told

JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An operation of a description."""

    method: str
    path: str
    described: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Where on the page it is."""
        name: str = self.described["operationId"]
        return name


def heading(entry: Entry) -> Markup:
    """The method and the path."""
    method = tag("span", entry.method, class_=f"method {entry.method.lower()}")
    steps = joined(*entry.path.split("/"), by=joined("/", tag("wbr")))
    return joined(method, " ", tag("code", steps, class_="path"))


def section(entry: Entry, document: Mapping[str, Any]) -> Markup:
    """All that the description says of an operation, and a command to try it."""
    operation, schemas = entry.described, document["components"]["schemas"]
    command = curl(entry.method, entry.path, operation, schemas)
    return tag(
        "section",
        tag("h3", tag("a", heading(entry), href=f"#{entry.id}")),
        tag("p", prose(operation["summary"])),
        tag("p", _admission(operation, document["components"]["securitySchemes"]), class_="needs"),
        *_parameters(operation["parameters"]),
        *_body(operation, schemas),
        tag("h4", "Answers"),
        *_answers(operation["responses"], schemas),
        tag("h4", "Example"),
        tag("pre", code(command)),
        id=entry.id,
    )


def _admission(operation: Mapping[str, Any], keys: Mapping[str, Any]) -> Markup:
    if "security" not in operation:
        return joined("Needs no key.")
    names = [name for way in operation["security"] for name in way]
    ways = (code(_header(keys[name])) for name in names)
    role = tag("strong", operation["x-role"])
    return joined("Role ", role, ", with a key in ", joined(*ways, by=" or "), ".")


def _header(key: Mapping[str, str]) -> str:
    return key["name"] if key["type"] == "apiKey" else f"Authorization: {key['scheme'].title()}"


def _parameters(parameters: list[Mapping[str, Any]]) -> Iterator[Markup]:
    if parameters:
        yield tag("h4", "Parameters")
        yield tag("dl", *map(_parameter, parameters))


def _parameter(parameter: Mapping[str, Any]) -> Markup:
    place = tag("span", parameter["in"], ",", class_="place")
    return row(
        joined(code(parameter["name"]), " ", place),
        parameter["schema"],
        is_required=parameter["required"],
        says=parameter.get("description", ""),
    )


def _body(operation: Mapping[str, Any], schemas: Schema) -> Iterator[Markup]:
    if "requestBody" not in operation:
        return
    body = operation["requestBody"]
    need = "required" if body["required"] else "optional"
    schema = body["content"][JSON]["schema"]
    yield tag("h4", "Body")
    yield tag("p", "JSON: ", told(schema), " ", tag("span", need, class_=need))
    yield fields(schemas[name_of(schema["$ref"])])


def _answers(responses: Mapping[str, Any], schemas: Schema) -> Iterator[Markup]:
    # Refusals that look alike stand together.
    alike = groupby(responses.items(), key=lambda item: _without_reason(item[1]))
    yield tag("dl", *(_answer([*answers]) for _, answers in alike), class_="answers")
    for status, answer in responses.items():
        schema = answer.get("content", {}).get(JSON, {}).get("schema")
        if schema is not None and status < "300":
            yield from _inside(schema, schemas)


def _without_reason(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "description"}


def _answer(answers: list[tuple[str, Mapping[str, Any]]]) -> Markup:
    statuses = (tag("dt", code(status), " ", each["description"]) for status, each in answers)
    one = answers[0][1]
    headers = (
        tag("p", "Header ", code(name), ": ", prose(header["description"]))
        for name, header in one.get("headers", {}).items()
    )
    return tag("div", *statuses, tag("dd", *_content(one), *headers))


def _content(answer: Mapping[str, Any]) -> Iterator[Markup]:
    if "content" not in answer:
        yield tag("p", "No body.")
    for kind, content in answer.get("content", {}).items():
        yield tag("p", told(content["schema"]) if kind == JSON else joined(kind))


def _inside(schema: Schema, schemas: Schema) -> Iterator[Markup]:
    named = schema.get("items", schema)
    if "$ref" not in named:
        return
    name = name_of(named["$ref"])
    yield tag("details", tag("summary", "What is in ", name), fields(schemas[name]))
