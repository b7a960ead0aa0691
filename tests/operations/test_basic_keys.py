"""Keys as the password of HTTP Basic: what a client sends by itself that was given a URL."""

import base64
import json
import logging
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import example, given, strategies as st

from agentops_memory_client import MemoryClient, Misconfigured

from ..http.test_any_input import EXAMPLES
from ..mcp.test_mcp_http import PING
from ..support.asking import KINDS, Road, answering, asking
from ..support.callers import made_key, revoke
from ..support.process import run
from ..support.raw import request, wire
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import PLAIN, Service, serving

NOT_A_KEY = "This service needs a valid key: Authorization: Bearer amk_..."
TWO_KEYS = "The headers Authorization and X-API-Key contain different keys."
STORES, ANTHROPIC = "/api/v1/cloud/memory_stores", "/anthropic/v1/memory_stores"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service") / "memory.db") as running:
        made_key(running.path)
        yield running


@pytest.fixture(scope="module")
def key(service: Service) -> str:
    return made_key(service.path)


@pytest.fixture(scope="module")
def other(service: Service) -> str:
    return made_key(service.path, tenant="other")


def basic(key: str, user: str = "x") -> str:
    """The header Authorization as a client makes it of `http://user:key@host`."""
    return f"Basic {base64.b64encode(f'{user}:{key}'.encode()).decode()}"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/stats", "/metrics", "/openapi.json", "/nowhere", STORES,
                                  f"{STORES}/none", ANTHROPIC])  # fmt: skip
@requirement("agentops:keys:basic", "stores:auth:authorization", "anthropic:sdk:keys")
def test_a_url_with_a_key_opens_what_the_key_opens(service: Service, key: str, path: str) -> None:
    with httpx.Client(verify=PLAIN) as anybody:
        by_url = anybody.get(service.url.replace("//", f"//console:{key}@") + path)
        by_header = anybody.get(service.url + path, headers={"authorization": f"Bearer {key}"})
        keyless = anybody.get(service.url + path)

    assert by_url.status_code == by_header.status_code != keyless.status_code == 401
    assert keyless.headers.get_list("www-authenticate") == ["Bearer"]


WRONG = [
    {}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"},
    {"authorization": basic("wrong")}, {"authorization": "Basic !"}, {"authorization": "Basic"},
]  # fmt: skip


@requirement("agentops:keys:no-challenge")
def test_no_route_asks_a_browser_for_a_password(service: Service, key: str) -> None:
    described = service.http.get("/openapi.json", headers={"x-api-key": key}).json()
    routes = [(method, path) for path, methods in described["paths"].items() for method in methods]
    agents = [("post", "/mcp"), ("post", "/mcp/shop"), ("delete", "/mcp"), ("get", "/mcp/shop")]
    elsewhere = [("get", "/nowhere"), ("put", "/stats"), ("options", "/"), ("head", "/search")]
    answers = [
        service.http.request(
            method, re.sub("{[^}]*}", "1", path), headers=WRONG[place % len(WRONG)]
        )
        for turn in range(2)
        for place, (method, path) in enumerate([*routes, *agents, *elsewhere], start=turn)
    ]

    assert sum(answer.status_code == 401 for answer in answers) > len(routes)
    challenges = {it for answer in answers for it in answer.headers.get_list("www-authenticate")}
    assert challenges == {"Bearer"}


@for_each("user", ["", "x", "amk_", "ä", "x y", "\0", "u" * 9_000])
@for_each("scheme", ["Basic", "BASIC  "])
@requirement("agentops:keys:basic")
def test_the_user_name_may_be_any(service: Service, key: str, user: str, scheme: str) -> None:
    sent = basic(key, user).replace("Basic", scheme)

    assert _asked(service, authorization=sent).status_code == 200
    assert _asked(service, "/mcp/shop", authorization=sent).status_code == 200


@requirement("agentops:keys:basic", "agentops:keys:two", "stores:auth:authorization")
def test_which_headers_open_what(service: Service, key: str, other: str) -> None:
    ended = made_key(service.path)
    assert _asked(service, authorization=basic(ended)).status_code == 200
    revoke(service.path, ended)
    whole = basic(key).removeprefix("Basic ")
    halves = whole[:20], whole[20:]
    broken = ["!{}{}", "{}!{}", "{} {}", "{}\xe9{}", "{}{}!"]
    foreign = [basic("a proxy's password"), "Bearer eyJ0.e30.x", "Negotiate x"]
    accepted: list[dict[str, str]] = [
        {"authorization": f"bearer {key}"}, {"authorization": f"BEARER   {key}"},
        {"x_api_key": key}, {"authorization": "Basic dTpw", "x_api_key": key},
        {"authorization": "", "x_api_key": key}, {"authorization": "Bearer", "x_api_key": key},
    ]  # fmt: skip
    refused: list[dict[str, str]] = [
        {}, {"authorization": key}, {"authorization": "Bearer"},
        {"authorization": f"Bearer {key} {key}"}, {"authorization": f"Bearer {key},"},
        {"authorization": f"Bearer{key}"}, {"authorization": f"Basic {key}"},
        {"authorization": f"Bearer {key[:-1]}"}, {"authorization": f"Bearer {key[:-3]}___"},
        {"authorization": f"Bearer amk_{'a' * 12}_{'B' * 43}"},
        {"authorization": f"Bearer {key[:17]}{other[17:]}"}, {"x_api_key": f"{key}B"},
        {"x_api_key": key.replace("amk", "AMK")}, {"x_api_key": f"amk_{'a' * 60_000}"},
        {"authorization": "Bearer \u00e9\u00ff"}, {"authorization": "Bearer " + "x" * 9_000},
        {"x_api_key": ""}, {"x_api_key": f"Bearer {key}"}, {"cookie": key},
    ]  # fmt: skip
    own, everywhere = [basic(key), f"Bearer {key}"], ["/stats", "/metrics", "/nowhere", "/mcp/shop"]
    cases: list[tuple[str, dict[str, str], int]] = [
        ("/stats", {"authorization": basic(ended)}, 401),
        *(("/stats", {"authorization": f"Basic {it.format(*halves)}"}, 401) for it in broken),
        *(("/stats", {"authorization": it, "x_api_key": key}, 200) for it in own + foreign),
        *(("/stats", {"authorization": it, "x_api_key": "of a proxy"}, 200) for it in own),
        *((path, {"authorization": it, "x_api_key": other}, 400)
          for it in own for path in [*everywhere, ANTHROPIC]),
        (STORES, {"x_api_key": key}, 401),
        *(("/stats", it, 200) for it in accepted), *(("/stats", it, 401) for it in refused),
        (STORES, {"authorization": basic(key), "x_api_key": other}, 200),
    ]  # fmt: skip

    for path, headers, status in cases:
        answer = _asked(service, path, **headers)
        assert answer.status_code == status, (path, headers)
        if status == 400:
            assert TWO_KEYS in answer.text
        elif status == 401 and path == "/stats":
            assert answer.json() == {"error": NOT_A_KEY}
        assert key not in answer.text


@pytest.mark.slow
@example("")
@example("OmFtaw")  # without its padding
@example(basic("amk").removeprefix("Basic ") + "=")
@example(base64.b64encode(b"amk_without_colon").decode())
@example(base64.b64encode(b"\xff\xfe:\xff").decode())
@given(st.text(st.characters(codec="latin-1", exclude_categories=["Cc"])) | st.binary().map(
    lambda text: base64.b64encode(text).decode()
))  # fmt: skip
@EXAMPLES
@requirement("agentops:keys:basic")
def test_what_is_no_key_is_401_as_any_other_text(service: Service, sent: str) -> None:
    answers = [
        _asked(service, authorization=f"{scheme} {sent}".strip())
        for scheme in ("Basic", "Bearer", "X")
    ]

    assert {(answer.status_code, answer.text) for answer in answers} == {
        (401, json.dumps({"error": NOT_A_KEY}, separators=(",", ":")))
    }


def test_an_open_service_looks_at_no_key(path: Path) -> None:
    with serving(path) as service:
        token = f"amk_{'a' * 12}_{'b' * 43}"
        for sent in (basic(token), "Basic", "Basic ?", f"Bearer {token}x"):
            assert _asked(service, authorization=sent, x_api_key=token).status_code == 200


def test_a_rate_is_that_of_the_key_however_it_is_sent(path: Path) -> None:
    with serving(path, MEMORY_RATE_LIMIT="2/h") as service:
        token = made_key(service.path)
        own, again = ({"authorization": basic(token, user)} for user in ("x", "y"))
        sent = [own, {"x_api_key": token}, again]

        assert [_asked(service, **each).status_code for each in sent] == [200, 200, 429]


def test_no_log_shows_a_key(service: Service, key: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    target = f"http://x:{key}@localhost/stats"
    with wire(service.url) as client:
        client.send(request("GET", target, authorization=basic(key)))
        assert client.answer().status == 200
        client.send(request("GET", target, host=f"x:{key}@localhost", authorization=basic(key)))
        refused = client.answer()

    logged = "".join(str(vars(record)) for record in caplog.records)
    assert refused.status == 403
    for text in (logged, refused.body.decode()):
        assert key not in text
        assert basic(key).removeprefix("Basic ") not in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_takes_the_key_from_its_url_and_shows_it_nowhere(
    kind: str, service: Service, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = service.url.replace("//", f"//x:{key}@")

    with asking(kind, url) as client, asking(kind, url, key=key) as twice:
        assert client.stats() == twice.stats()
        shown = repr(client) + str(vars(client))

    assert key not in shown + caplog.text


def test_a_client_sends_the_password_as_a_bearer_to_the_host_alone() -> None:
    road = Road([answering(200, [])])

    with asking("blocking", "https://:a%2Fb@memory.test:7437/x", road=road) as client:
        client.sessions()

    sent = road.requests[0]
    assert sent.headers["authorization"] == "Bearer a/b"
    assert (sent.headers["host"], sent.url.userinfo) == ("memory.test:7437", b"")


def test_two_keys_are_refused_by_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Misconfigured, match="a key other than") as refusal:
        MemoryClient("http://x:s3cret@memory.test", key="other")
    assert "s3cret" not in str(refusal.value)
    monkeypatch.setenv("MEMORY_URL", "http://x:s3cret@memory.test")
    monkeypatch.setenv("MEMORY_API_KEY", "other")
    with pytest.raises(Misconfigured, match="a key other than"):
        MemoryClient.from_environment()


@pytest.mark.slow
def test_the_program_takes_the_key_from_its_url(service: Service, key: str) -> None:
    url = service.url.replace("//", f"//x:{key}@")

    for done in (
        run("stats", "--url", url),
        run("demo", variables={"MEMORY_URL": url}),
        run("stats", variables={"MEMORY_URL": url, "MEMORY_API_KEY": key}),
    ):
        assert (done.returncode, done.stderr) == (0, "")
        assert key not in done.stdout


BAD_URLS = [
    "http://x:{key}@127.0.0.1:1", "http://x:{key}", "x:{key}@127.0.0.1:1", "http://x:{key}@[::1",
    "http://{key}@127.0.0.1:1", "http://x:{key}%0A@127.0.0.1:1", "ftp://x:{key}@127.0.0.1",
    "http://x:{key}@127.0.0.1:99999",
]  # fmt: skip


@pytest.mark.slow
def test_no_refusal_of_the_program_shows_the_key_of_its_url(key: str) -> None:
    for number, url in enumerate(BAD_URLS):
        _assert_hidden(run(("stats", "demo")[number % 2], "--url", url.format(key=key)), key)
    two_keys = {"MEMORY_URL": f"http://x:{key}@127.0.0.1:1", "MEMORY_API_KEY": "s3cret"}
    for arguments in (("stats",), ("demo",), ("mcp", "--project", "p")):
        done = run(*arguments, variables=two_keys)
        _assert_hidden(done, key, "s3cret")
        assert "a key other than" in done.stderr


def _assert_hidden(done: subprocess.CompletedProcess[str], *keys: str) -> None:
    """The program failed with a sentence that shows none of the keys."""
    assert done.returncode != 0
    assert done.stderr.startswith(("agentops-memory: ", "Usage: "))
    assert not any(key in done.stdout + done.stderr for key in keys)


def _asked(service: Service, path: str = "/stats", **headers: str) -> httpx.Response:
    pairs = ((name.replace("_", "-"), value) for name, value in headers.items())
    sent = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
    if path.startswith("/mcp"):
        return service.http.post(path, json=PING, headers=sent)
    return service.http.get(path, headers=sent)
