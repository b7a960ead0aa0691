"""The page: what a description says, in the order in which people look for it."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any

from .markup import Markup, code, prose, tag
from .operations import Entry, heading, section
from .schemas import fields, link

Description = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, and the content security policy that lets it be seen as it is."""

    content: bytes
    policy: str


def page(document: Description) -> Page:
    """An OpenAPI document as a page."""
    style = Markup(files(__package__).joinpath("page.css").read_text("utf-8"))
    html = tag("html", *_html(document, style), lang="en")
    return Page(content=f"<!doctype html>\n{html}\n".encode(), policy=_policy(style))


def _policy(style: str) -> str:
    digest = b64encode(sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _html(document: Description, style: Markup) -> Iterator[Markup]:
    title, version = document["info"]["title"], document["info"]["version"]
    yield tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title, " ", version),
        tag("style", style),
    )
    yield tag(
        "body",
        tag("a", "To the operations", href="#operations", class_="skip"),
        tag("header", tag("h1", title, " ", tag("small", version)), *_introduction()),
        tag("nav", *_contents(document), aria_label="Contents"),
        tag("main", *_groups(document), *_schemas(document), id="operations", tabindex="-1"),
    )


def _introduction() -> Iterator[Markup]:
    yield tag(
        "p",
        "All that ", tag("a", code("openapi.json"), href="openapi.json"), " says, for people. ",
        "The examples ask a service on this machine and send the key in ", code("$KEY"),
        ", which a service without keys does not look at. The ids in them are nobody's.",
    )  # fmt: skip


def _contents(document: Description) -> Iterator[Markup]:
    for group in document["tags"]:
        lines = (
            tag("li", tag("a", heading(entry), href=f"#{entry.id}"))
            for entry in _entries(document, group["name"])
        )
        yield _chapter(group["name"], *lines, open="")
    names = (tag("li", link(name)) for name in document["components"]["schemas"])
    yield _chapter("Schemas", *names)


def _chapter(title: str, *lines: Markup, **attributes: str) -> Markup:
    return tag("details", tag("summary", title), tag("ul", *lines), **attributes)


def _groups(document: Description) -> Iterator[Markup]:
    for group in document["tags"]:
        yield tag("h2", group["name"])
        yield tag("p", prose(group["description"]))
        yield from (section(each, document) for each in _entries(document, group["name"]))


def _entries(document: Description, group: str) -> Iterator[Entry]:
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            if group in described["tags"]:
                yield Entry(method=method.upper(), path=path, described=described)


def _schemas(document: Description) -> Iterator[Markup]:
    yield tag("h2", "Schemas")
    for name, schema in document["components"]["schemas"].items():
        yield tag(
            "section",
            tag("h3", tag("a", name, href=f"#schema-{name}")),
            tag("p", prose(schema.get("description", ""))),
            fields(schema),
            id=f"schema-{name}",
        )
