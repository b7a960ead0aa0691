"""What the Memory Stores API answers is what its description says."""

import httpx
import pytest
import schemathesis

from ..support.service import Service
from ..support.stores import STORES, at, entry, entry_at, store, version_at, versions

STORE, ENTRY, VERSION = "{store_id}", "memories/{entry_id}", "versions/{version_id}"


def test_every_answer_is_as_described(service: Service) -> None:
    described = schemathesis.openapi.from_dict(service.http.get("/openapi.json").json())
    asked: set[tuple[str, str]] = set()

    def ask(method: str, path: str, template: str, body: object = None) -> None:
        answer: httpx.Response = service.http.request(method, path, json=body)
        assert answer.is_success, answer.text
        described[template][method].validate_response(answer)
        asked.add((method, template))

    def below(template: str) -> str:
        return f"{STORES}/{STORE}/{template}" if template else f"{STORES}/{STORE}"

    ask("POST", STORES, STORES, {"name": "Notes", "metadata": {"a": "b"}})
    home = store(service.http)
    ask("POST", at(home, "memories"), below("memories"), {"path": "a/b", "content": "walnut"})
    made = entry(service.http, home, "c", "walnut", metadata={"a": "b"})
    ask("PUT", entry_at(home, made), below(ENTRY), {"content": "a walnut", "version": 1})
    ask("GET", entry_at(home, made), below(ENTRY))
    ask("GET", at(home, "memories"), below("memories"))
    ask("GET", f"{at(home, 'search')}?q=walnut", below("search"))
    head, first, _ = versions(service.http, home)
    ask("POST", f"{version_at(home, first)}/redact", below(f"{VERSION}/redact"))
    for version in (head, first):
        ask("GET", version_at(home, version), below(VERSION))
    ask("DELETE", entry_at(home, made), below(ENTRY))
    ask("GET", at(home, "versions"), below("versions"))
    ask("POST", at(home, "archive"), below("archive"))
    ask("GET", at(home), below(""))
    ask("GET", f"{STORES}?include_archived=true", STORES)
    ask("DELETE", at(home), below(""))
    ask("GET", STORES, STORES)

    every = {
        (method.upper(), path)
        for path, methods in described.raw_schema["paths"].items()
        for method in methods
        if path.startswith(STORES)
    }
    assert asked == every


@pytest.mark.slow
def test_what_is_not_as_described_would_be_noticed(service: Service) -> None:
    described = schemathesis.openapi.from_dict(service.http.get("/openapi.json").json())
    store(service.http)
    answer = service.http.get("/stats")

    with pytest.raises(Exception, match="data"):
        described[STORES]["GET"].validate_response(answer)
