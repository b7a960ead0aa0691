"""The page of the API loads its viewer from the service alone, and asks for a key by itself."""

import re
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from ..http.test_security_headers import EXPECTED, told
from ..support.callers import made_key
from ..support.pages import Page
from ..support.samples import for_each
from ..support.service import Service, lasting_with, serving

service = lasting_with()

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
LOADED = {
    "/docs/index.css": "text/css", "/docs/page.js": "text/javascript",
    "/docs/swagger-ui-bundle.js": "text/javascript", "/docs/swagger-ui.css": "text/css",
}  # fmt: skip


@pytest.fixture(scope="module")
def answer(service: Service) -> httpx.Response:
    return service.http.get("/docs")


def test_all_that_it_loads_comes_from_the_service(service: Service, answer: httpx.Response) -> None:
    addresses = [
        value
        for _, attributes in Page(answer).elements
        for name, value in attributes.items()
        if name in {"href", "src"} and value is not None and not value.startswith("data:")
    ]

    assert {urljoin("/docs", address) for address in addresses} == LOADED.keys()
    for path, kind in LOADED.items():
        loaded = service.http.get(path)
        assert loaded.status_code == 200
        assert loaded.headers["content-type"] == f"{kind}; charset=utf-8"
        assert told(loaded) == EXPECTED


def test_a_browser_may_run_its_own_scripts_and_nothing_inline(answer: httpx.Response) -> None:
    named = {name for _, attributes in Page(answer).elements for name in attributes}
    inline = re.findall(r"<(?:script|style)[^>]*>([^<]*)<", answer.text)

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert told(answer) == EXPECTED | {"content-security-policy": POLICY}
    assert "".join(inline).strip() == ""
    assert inline
    assert not {name for name in named if name == "style" or name.startswith("on")}


def test_its_script_shows_the_description_with_search_and_nothing_of_a_request_is_on_it(
    service: Service, answer: httpx.Response
) -> None:
    script = service.http.get("/docs/page.js").text

    assert 'fetch("openapi.json"' in script
    assert re.search(r"\bfilter: true", script)
    assert not re.search(r"https?:|\beval\b|new Function|innerHTML", script)
    for path in ("/docs/", "/docs/oauth2-redirect.html", "/docs/swagger-ui.js"):
        assert service.http.get(path).status_code == 404
    headers = {"host": "localhost:9", "x-forwarded-host": "e"}
    assert service.http.get("/docs?a=<b>", headers=headers).content == answer.content


def test_the_page_is_for_anyone_and_the_description_needs_a_key(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service:
        made_key(service.path, "reader")

        assert {service.http.get(path).status_code for path in ("/docs", *LOADED)} == {200}
        assert service.http.get("/openapi.json", headers={"accept": BROWSER}).status_code == 401


@for_each("path", ["/docs", *LOADED])
def test_other_methods_are_answered_as_elsewhere(service: Service, path: str) -> None:
    head = service.http.head(path)
    post = service.http.post(path)

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(service.http.get(path).content))
    assert (post.status_code, post.headers["allow"]) == (405, "GET, HEAD")
    assert post.json() == {"error": "This path does not support this method."}
