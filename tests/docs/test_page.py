"""The page for people says what the description says, and leads nowhere else."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from agentops_memory.http.docs_page.page import page

from ..http.test_security_headers import EXPECTED
from ..http.test_security_headers import told as told_browsers
from ..support.service import Service, serving
from ..support.shown import Shown
from .test_openapi import operations

PAIRS = (
    "object (at most 16 pairs, names of at most 64 characters) of string (at most 512 characters)"
)
ELEMENTS = {
    "html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section",
    "h1", "h2", "h3", "h4", "p", "small", "strong", "a", "span", "code", "pre", "wbr",
    "ul", "li", "dl", "div", "dt", "dd", "details", "summary",
}  # fmt: skip
ATTRIBUTES = {
    "aria-label", "charset", "class", "content", "href", "id", "lang", "name", "open", "tabindex",
}  # fmt: skip
HOSTILE = """"><script src=//evil.example>alert(1)</script></style></code>'&lt;!-- `${x}` ]]>"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service") / "memory.db") as running:
        yield running


@pytest.fixture(scope="module")
def document(service: Service) -> dict[str, Any]:
    described: dict[str, Any] = service.http.get("/openapi.json").json()
    return described


@pytest.fixture(scope="module")
def answer(service: Service) -> httpx.Response:
    return service.http.get("/docs")


@pytest.fixture(scope="module")
def shown(answer: httpx.Response) -> Shown:
    return Shown(answer.text)


def need(is_required: bool) -> str:
    return "required" if is_required else "optional"


def names(schema: dict[str, Any]) -> list[str]:
    """The fields of an object, as the page names them."""
    required = schema.get("required", ())
    return [f"{name} {need(name in required)}" for name in schema.get("properties", ())]


def test_it_shows_every_operation_with_its_parameters_its_body_and_its_answers(
    document: dict[str, Any], shown: Shown
) -> None:
    schemas = document["components"]["schemas"]
    found = {}
    expected = {}
    for (method, path), operation in operations(document).items():
        section = shown.sections[operation["operationId"]]
        found[method, path] = (
            section[""]["h3"],
            section[""]["p"][0],
            section.get("Parameters", {}).get("dt", []),
            section.get("Body", {}).get("dt", []),
            section["Answers"]["dt"],
        )
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        name = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
        expected[method, path] = (
            [f"{method} {path}"],
            operation["summary"],
            [
                f"{each['name']} {each['in']}, {need(each['required'])}"
                for each in operation["parameters"]
            ],
            names(schemas[name]) if name else [],
            [f"{status} {each['description']}" for status, each in operation["responses"].items()],
        )

    assert found == expected


def test_it_names_the_role_and_the_headers_of_each_operation(
    document: dict[str, Any], shown: Shown
) -> None:
    for operation in operations(document).values():
        section = shown.sections[operation["operationId"]]
        admission = section[""]["p"][1]
        role, ways = operation.get("x-role"), operation.get("security", [])
        assert admission.startswith(f"Role {role}, " if role else "Needs no key."), admission
        assert ("X-API-Key" in admission) == ({"header": []} in ways), admission
        told_of = " ".join(section["Answers"]["dd"])
        for each in operation["responses"].values():
            for name, header in each.get("headers", {}).items():
                assert f"Header {name}: {header['description'].replace('`', '')}" in told_of


def test_it_shows_every_schema_with_its_fields(document: dict[str, Any], shown: Shown) -> None:
    schemas = document["components"]["schemas"]

    sections = {name: shown.sections[f"schema-{name}"][""] for name in schemas}

    assert {name: section.get("dt", []) for name, section in sections.items()} == {
        name: names(schema) for name, schema in schemas.items()
    }
    described = {name: schema["description"].replace("`", "") for name, schema in schemas.items()}
    assert {name: section["p"][0] for name, section in sections.items()} == described


def test_it_says_what_is_said_of_each_parameter_and_field(
    document: dict[str, Any], shown: Shown
) -> None:
    for operation in operations(document).values():
        section = shown.sections[operation["operationId"]]
        for each, text in zip(operation["parameters"], _told(section, "Parameters"), strict=True):
            assert text.endswith(each.get("description", "").replace("`", ""))
    for name, schema in document["components"]["schemas"].items():
        fields = schema.get("properties", {}).values()
        for each, text in zip(fields, _told(shown.sections[f"schema-{name}"], ""), strict=True):
            assert text.endswith(each.get("description", "").replace("`", ""))


def _told(section: dict[str, dict[str, list[str]]], title: str) -> list[str]:
    return section.get(title, {}).get("dd", [])


def test_an_answer_links_to_its_schema(document: dict[str, Any], shown: Shown) -> None:
    for operation in operations(document).values():
        links = shown.sections[operation["operationId"]]["Answers"].get("a", [])
        for each in operation["responses"].values():
            content = each.get("content", {}).get("application/json", {})
            for name in re.findall(r"schemas/(\w+)", json.dumps(content)):
                assert name in links, operation["operationId"]


def test_a_default_is_told(shown: Shown) -> None:
    fields = shown.sections["schema-StoreBody"][""]

    assert fields["dd"] == [
        "string (1 to 64 characters)",
        'string (at most 1,024 characters); "" unless told',
        f"{PAIRS}; {{}} unless told",
    ]


def test_nothing_on_it_leads_elsewhere(shown: Shown) -> None:
    ids = [said["id"] for _, said in shown.elements if "id" in said]
    links = {said["href"] for _, said in shown.elements if "href" in said}

    assert {tag for tag, _ in shown.elements} == ELEMENTS
    assert {name for _, said in shown.elements for name in said} == ATTRIBUTES
    assert len(set(ids)) == len(ids)
    assert links - {f"#{id_}" for id_ in ids} == {"openapi.json"}
    assert not re.search(r"url\(|@import|//", shown.style)


CHAPTERS = [
    "AgentOps REST", "Memory Stores", "OpenIntent RFC-0015", "Anthropic dialect",
    "OpenWOP agent memory", "Schemas",
]  # fmt: skip


def test_its_contents_name_every_operation_by_protocol(
    document: dict[str, Any], shown: Shown
) -> None:
    links = [said["href"] for tag, said in shown.elements if tag == "a"]
    chapters = re.findall("|".join(CHAPTERS), shown.text)

    for operation in operations(document).values():
        assert links.count(f"#{operation['operationId']}") == 2  # and at its own heading
    assert chapters == 2 * CHAPTERS
    assert [group["name"] for group in document["tags"]] == CHAPTERS[:-1]


def test_a_browser_may_use_its_stylesheet_and_nothing_else(
    answer: httpx.Response, shown: Shown
) -> None:
    digest = b64encode(sha256(shown.style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert told_browsers(answer) == EXPECTED | {"content-security-policy": policy}


def test_the_description_says_that_it_is_a_page(document: dict[str, Any], shown: Shown) -> None:
    described = document["paths"]["/docs"]["get"]["responses"]["200"]["content"]

    assert described.keys() == {"text/html"}
    assert shown.sections["docs"]["Answers"]["dd"][0] == "text/html"


def test_nothing_of_a_request_is_on_it(service: Service, answer: httpx.Response) -> None:
    asked = service.http.get(
        "/docs?a=<b>", headers={"host": "localhost:9", "x-forwarded-host": "e"}
    )

    assert asked.content == answer.content


def test_other_methods_are_answered_as_elsewhere(service: Service, answer: httpx.Response) -> None:
    head = service.http.head("/docs")
    post = service.http.post("/docs")

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(answer.content))
    assert (post.status_code, post.headers["allow"]) == (405, "GET, HEAD")
    assert post.json() == {"error": "This path does not take this method."}
    assert service.http.get("/docs/").status_code == 404


def hostile(value: Any) -> Any:
    """The description, with hostile text wherever there is text for people."""
    match value:
        case dict():
            return {
                name: f"{inner}{HOSTILE}" if _is_for_people(name, inner) else hostile(inner)
                for name, inner in value.items()
            }
        case list():
            return [hostile(each) for each in value]
    return value


def _is_for_people(name: str, value: object) -> bool:
    return isinstance(value, str) and name in {
        "title", "version", "summary", "description", "pattern", "default", "x-role", "format",
    }  # fmt: skip


def test_hostile_text_is_text(document: dict[str, Any]) -> None:
    harmless, harmed = Shown(page(document).content.decode()), page(hostile(document))
    read = Shown(harmed.content.decode())

    assert {tag for tag, _ in read.elements} == ELEMENTS
    assert {name for _, said in read.elements for name in said} == ATTRIBUTES
    assert read.text.count("<script src=//evil.example>") > 100
    assert read.style == harmless.style


def test_hostile_names_are_text(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for name in ("ObservationBody", "add_observation", "session_id", "AgentOps REST"):
        text = text.replace(name, json.dumps(name + HOSTILE)[1:-1])

    read = Shown(page(json.loads(text)).content.decode())

    assert {tag for tag, _ in read.elements} == ELEMENTS
    assert {name for _, said in read.elements for name in said} == ATTRIBUTES
    assert f"add_observation{HOSTILE}" in read.sections


def luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_its_text_has_contrast_in_light_and_in_dark(shown: Shown) -> None:
    schemes = re.findall(r":root \{(.*?)\}", shown.style, re.DOTALL)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = {name: luminance(c) for name, c in re.findall(r"--(\w+): (#\w{6});", scheme)}
        grounds = [colours.pop("page"), colours.pop("raised")]
        del colours["line"]
        for name, colour in colours.items():
            for ground in grounds:
                dark, light = sorted((colour, ground))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, name  # WCAG 2.2 AA
