"""The OpenAPI document as a page, which loads nothing from anywhere."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import Any

from .examples import curl
from .markup import Markup, Schema, code, fields, joined, link, name_of, need, prose, row, tag, told

Document = Mapping[str, Any]
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, and the content security policy that lets it be seen as it is."""

    content: bytes
    policy: str


def page(document: Document) -> Page:
    """An OpenAPI document as a page."""
    style = Markup(files(__package__).joinpath("page.css").read_text("utf-8"))
    digest = b64encode(sha256(style.encode()).digest()).decode()
    html = tag("html", _head(document["info"], style), _body(document), lang="en")
    return Page(
        content=f"<!doctype html>\n{html}\n".encode(),
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    )


def _head(info: Mapping[str, str], style: Markup) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", info["title"], " ", info["version"]),
        tag("style", style),
    )


def _body(document: Document) -> Markup:
    info, schemas = document["info"], document["components"]["schemas"]
    heading = tag("h1", info["title"], " ", tag("small", info["version"]))
    introduction = tag(
        "p",
        "All that ", tag("a", code("openapi.json"), href="openapi.json"), " says, for people. ",
        "The examples ask a service on this machine and send the key in ", code("$KEY"),
        ", which a service without keys does not look at. The ids in them are nobody's.",
    )  # fmt: skip
    return tag(
        "body",
        tag("a", "To the operations", href="#operations", class_="skip"),
        tag("header", heading, introduction),
        tag("nav", *_contents(document), aria_label="Contents"),
        tag("main", *_groups(document), *_schemas(schemas), id="operations", tabindex="-1"),
    )


def _contents(document: Document) -> Iterator[Markup]:
    for group in document["tags"]:
        links = (
            tag("a", _heading(method, path), href=f"#{operation['operationId']}")
            for method, path, operation in _operations(document, group["name"])
        )
        yield _chapter(group["name"], links, open="")
    yield _chapter("Schemas", map(link, document["components"]["schemas"]))


def _chapter(title: str, links: Iterator[Markup], **attributes: str) -> Markup:
    lines = (tag("li", each) for each in links)
    return tag("details", tag("summary", title), tag("ul", *lines), **attributes)


def _groups(document: Document) -> Iterator[Markup]:
    for group in document["tags"]:
        yield tag("h2", group["name"])
        yield tag("p", prose(group["description"]))
        for method, path, operation in _operations(document, group["name"]):
            yield _section(method, path, operation, document["components"])


def _operations(document: Document, group: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The method, the path and the description of each operation of a group."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if group in operation["tags"]:
                yield method.upper(), path, operation


def _schemas(schemas: Schema) -> Iterator[Markup]:
    yield tag("h2", "Schemas")
    for name, schema in schemas.items():
        yield tag(
            "section",
            tag("h3", tag("a", name, href=f"#schema-{name}")),
            tag("p", prose(schema.get("description", ""))),
            fields(schema),
            id=f"schema-{name}",
        )


def _heading(method: str, path: str) -> Markup:
    steps = joined(*path.split("/"), by=joined("/", tag("wbr")))
    shown = tag("span", method, class_=f"method {method.lower()}")
    return joined(shown, " ", tag("code", steps, class_="path"))


def _section(
    method: str, path: str, operation: Mapping[str, Any], components: Mapping[str, Any]
) -> Markup:
    """All that the document says of an operation, and a command to try it."""
    name, schemas = operation["operationId"], components["schemas"]
    return tag(
        "section",
        tag("h3", tag("a", _heading(method, path), href=f"#{name}")),
        tag("p", prose(operation["summary"])),
        tag("p", _admission(operation, components["securitySchemes"]), class_="needs"),
        *_parameters(operation["parameters"]),
        *_request_body(operation.get("requestBody"), schemas),
        tag("h4", "Answers"),
        *_answers(operation["responses"], schemas),
        tag("h4", "Example"),
        tag("pre", code(curl(method, path, operation, schemas))),
        id=name,
    )


def _admission(operation: Mapping[str, Any], keys: Mapping[str, Any]) -> Markup:
    if "security" not in operation:
        return joined("Needs no key.")
    ways = (code(_header(keys[name])) for way in operation["security"] for name in way)
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
    name = joined(code(parameter["name"]), " ", place)
    says = parameter.get("description", "")
    return row(name, parameter["schema"], is_required=parameter["required"], says=says)


def _request_body(body: Mapping[str, Any] | None, schemas: Schema) -> Iterator[Markup]:
    if body:
        schema = body["content"][JSON]["schema"]
        yield tag("h4", "Body")
        yield tag("p", "JSON: ", told(schema), " ", need(is_required=body["required"]))
        yield fields(schemas[name_of(schema["$ref"])])


def _answers(responses: Mapping[str, Any], schemas: Schema) -> Iterator[Markup]:
    # Refusals that look alike stand together.
    alike = groupby(responses.items(), key=lambda item: {**item[1], "description": ""})
    yield tag("dl", *(_answer([*answers]) for _, answers in alike), class_="answers")
    for status, answer in responses.items():
        schema = answer.get("content", {}).get(JSON, {}).get("schema", {})
        named = schema.get("items", schema)
        if "$ref" in named and status < "300":
            name = name_of(named["$ref"])
            yield tag("details", tag("summary", "What is in ", name), fields(schemas[name]))


def _answer(answers: list[tuple[str, Mapping[str, Any]]]) -> Markup:
    statuses = (tag("dt", code(status), " ", each["description"]) for status, each in answers)
    one = answers[0][1]
    bodies = [
        told(content["schema"]) if kind == JSON else kind
        for kind, content in one.get("content", {}).items()
    ]
    headers = (
        tag("p", "Header ", code(name), ": ", prose(header["description"]))
        for name, header in one.get("headers", {}).items()
    )
    said = (tag("p", each) for each in bodies or ["No body."])
    return tag("div", *statuses, tag("dd", *said, *headers))
