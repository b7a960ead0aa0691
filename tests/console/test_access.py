"""Who sees the console and its view *Service*: a key as password, and forms of its own alone."""

import base64
import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agentops_memory import telemetry

from ..http.test_security_headers import EXPECTED, told
from ..support.callers import made_key
from ..support.engines import is_postgresql
from ..support.pages import Page, get, press
from ..support.service import Service, serving

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
BROWSER = {"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
CHALLENGE = 'Basic realm="console", charset="UTF-8"'


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, dict[str, str]]]:
    """A service with a key of each role."""
    path = tmp_path_factory.mktemp("closed") / "memory.db"
    with serving(path) as service:
        service.save("The door is green.")
        keys = {role: made_key(path, role) for role in ("reader", "writer", "admin")}
        keys["other"] = made_key(path, "admin", projects=("other",))
        yield service, keys


def signed_in(service: Service, key: str) -> httpx.Client:
    return httpx.Client(base_url=service.url, auth=("anybody", key))


@pytest.mark.slow
def test_every_page_tells_the_browser_what_it_may_do(service: Service) -> None:
    service.save("The door is green.")
    for path, status in (("/ui/memories/1", 200), ("/ui/nowhere", 404), ("/ui/memories/9", 404)):
        answer = service.http.get(path)
        assert answer.status_code == status
        assert told(answer) == EXPECTED | {"content-security-policy": POLICY}
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        page = Page(answer)
        named = {name for _, attributes in page.elements for name in attributes}
        assert not {name for name in named if name == "style" or name.startswith("on")}
        assert "style" not in {tag for tag, _ in page.elements}
    for name, kind in (("console.css", "text/css"), ("console.js", "text/javascript")):
        answer = service.http.get(f"/ui/static/{name}")
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert len(answer.content) <= 5 * 1024
    assert service.http.get("/ui/static/page.py").status_code == 404

    page = get(service.http, "/ui/memories")  # of an open service, which says nothing of keys
    assert "answers 401" not in page.text
    twins = page.texts[page.texts.index("The same as JSON") :]
    assert [service.http.get(it).status_code for it in twins if it.startswith("/")] == [200, 200]

    led, program = service.http.get("/", headers=BROWSER), service.http.get("/")
    assert (led.status_code, led.headers["location"]) == (307, "/ui")
    assert program.status_code == 404
    assert program.json() == {"error": "There is nothing at this path."}
    assert service.http.post("/", headers=BROWSER).json() == program.json()


def test_a_key_is_the_password_below_ui_alone(closed: tuple[Service, dict[str, str]]) -> None:
    service, keys = closed
    refused = service.http.get("/ui/memories/1")

    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, CHALLENGE)
    assert "green" not in refused.text
    assert "Sign in with an API key" in refused.text
    assert service.http.get("/stats").headers["www-authenticate"] == "Bearer"
    assert service.http.get("/ui/nowhere").status_code == 401
    for user in ("anybody", "", "J\xf6rg", "a" * 300):
        pair = base64.b64encode(f"{user}:{keys['reader']}".encode()).decode()
        page = service.http.get("/ui/memories/1", headers={"Authorization": f"Basic {pair}"})
        assert "The door is green." in page.text


@pytest.mark.slow
def test_a_role_sees_its_buttons_and_no_other_is_obeyed(
    closed: tuple[Service, dict[str, str]],
) -> None:
    service, keys = closed
    buttons = {}
    for role in ("reader", "writer", "admin"):
        with signed_in(service, keys[role]) as http:
            page = get(http, "/ui/memories/1")
            labels = {label for form in page.forms for label, *_ in form.buttons}
            buttons[role] = "Pin" in labels, "Erase it for good" in page.links
            sent = http.post("/ui/memories/1", data={"action": "pin"})
            assert (sent.status_code, "role writer" in sent.text) == (403, role == "reader")
            erased = http.post("/ui/memories/1/erase")
            assert (erased.status_code, "role admin" in erased.text) == (403, role != "admin")
            if role == "writer":
                form = page.form("Pin")

    assert buttons == {"reader": (False, False), "writer": (True, False), "admin": (True, True)}
    with signed_in(service, keys["admin"]) as http:  # a token is of one key
        assert http.post(form.action, data=dict(form.fields)).status_code == 403


@pytest.mark.slow
def test_a_form_of_another_site_is_refused(service: Service) -> None:
    service.save("The door is green.")
    for headers, status in (
        ({"Origin": "https://evil.example"}, 403), ({"Host": "evil.example"}, 403),
        ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "null"}, 303),  # as a browser hides it, where pages say `no-referrer`
        ({"Sec-Fetch-Site": "same-origin"}, 303),
    ):  # fmt: skip
        form = get(service.http, "/ui/memories/1").form("Pin")
        answer = service.http.post(form.action, data=dict(form.fields), headers=headers)
        assert answer.status_code == status, headers
        pinned = service.http.get("/observations/1").json().get("pinned", False)
        assert pinned == (status == 303)
        service.http.patch("/observations/1", json={"pinned": False}).raise_for_status()
    assert service.http.get("/stats", headers={"Origin": "null"}).status_code == 403


@pytest.mark.slow
def test_a_form_without_its_token_comes_back_filled_in(service: Service) -> None:
    service.save("The door is green.")
    for token in ("", "x", "1-2", "9" * 30 + "-a", "1893499200-" + "0" * 64):
        page = get(service.http, "/ui/memories/1/edit")
        before = service.http.get("/observations/1").json()["content"]
        content = f'Blue & "red"\nnow {token[:3]}'

        back = press(service.http, page, "Save", {"content": content, "token": token})

        assert back.status == 403
        assert service.http.get("/observations/1").json()["content"] == before
        saved = press(service.http, back, "Send it again")
        assert (saved.status, saved.url.path) == (200, "/ui/memories/1")
        assert service.http.get("/observations/1").json()["content"] == content


def test_a_form_that_was_open_for_days_comes_back_as_a_decision_on_what_was_seen(
    service: Service,
) -> None:
    service.save("The door is green.")
    page = get(service.http, "/ui/memories/1")
    service.clock.advance(days=2)

    back = press(service.http, page, "Pin")

    assert (back.status, back.form("Send it again").action) == (403, "/ui/memories/1")
    assert press(service.http, back, "Send it again").status == 200
    assert service.http.get("/observations/1").json()["pinned"] is True

    service.http.patch("/observations/1", json={"content": "The door is red."}).raise_for_status()
    both = press(service.http, press(service.http, page, "Delete"), "Send it again")
    assert (both.status, "has changed since you opened the page" in both.text) == (409, True)
    assert service.http.get("/observations/1").status_code == 200


def test_the_command_at_the_foot_answers_as_the_twin_does(
    closed: tuple[Service, dict[str, str]],
) -> None:
    service, keys = closed
    with signed_in(service, keys["reader"]) as http:
        page = get(http, "/ui/memories", q="door 'n' $gate", project="demo")
        twin = next(it for it in page.links if it.startswith("/search"))
        line = next(it for it in page.text.splitlines() if "curl" in it and "/search" in it)
    command = shlex.split(line[line.index("curl ") :].replace("$MEMORY_API_KEY", keys["reader"]))
    name, _, value = command[2].partition(": ")

    answer = httpx.get(command[3], headers={name: value})

    assert command[:2] == ["curl", "-H"]
    assert command[3] == f"{service.url}{twin}"
    assert "a link alone is answered with 401" in page.text
    assert (answer.status_code, answer.json()[0]["content"]) == (200, "The door is green.")


@pytest.mark.slow
def test_a_form_that_is_none_is_refused(service: Service) -> None:
    service.save("The door is green.")
    many = "&".join(f"a{i}=1" for i in range(600))
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for body in (many, "\xff=%ff&;;&&=", "{}"):
        answer = service.http.post("/ui/memories/1", content=body.encode("latin-1"), headers=kind)
        assert answer.status_code in (400, 403)
    large = service.http.post("/ui/memories/1", content=b"a" * (2**20 + 1), headers=kind)
    assert large.status_code == 413


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, dict[str, str]]]:
    """A service with memories, an erasure, and a key of each kind."""
    path = tmp_path_factory.mktemp("operated") / "memory.db"
    kept = serving(
        path, MEMORY_KEEP_DELETED="90d", MEMORY_KEEP_EXPIRED="0", MEMORY_KEEP_REVISIONS="7"
    )
    with kept as service:
        for number in range(3):
            service.save(f"The door {number} is green.")
        service.save("Another house.", project="house", session_id="s2")
        service.http.delete("/observations/2", params={"hard": "true"}).raise_for_status()
        keys = {role: made_key(path, role) for role in ("reader", "admin")}
        keys["other"] = made_key(path, "admin", projects=("other",))
        keys["tenant"] = made_key(path, "admin", tenant="acme")
        yield service, keys


def service_page(service: Service, key: str) -> Page:
    with httpx.Client(base_url=service.url, auth=("anybody", key)) as http:
        return get(http, "/ui/service")


@pytest.mark.slow
def test_an_admin_sees_the_numbers_of_the_twins_receipts_and_keys_without_secrets(
    operated: tuple[Service, dict[str, str]],
) -> None:
    service, keys = operated
    service_page(service, keys["reader"])
    page, bearer = (
        service_page(service, keys["admin"]),
        {"authorization": f"Bearer {keys['admin']}"},
    )
    stats = service.http.get("/stats", headers=bearer).json()
    ready = service.http.get("/health/ready").json()
    words = page.cells

    assert {"/health/ready", "/stats", "/metrics"} <= page.links.keys()
    assert f"Memories {stats['total_observations']}" in words
    assert f"Sessions {stats['total_sessions']}" in words
    for name, check in ready["checks"].items():
        assert f"{name} {check['status']}" in words
    assert ("All is well." in words) is (ready["status"] == "ok")
    receipt = next(it for it in page.links.values() if it.startswith("/ui/erasures/"))
    erased = service.http.get(receipt.removeprefix("/ui"), headers=bearer).json()
    assert erased["observations"] == 1
    assert "observation: 1 memory, 1 revision" in words
    assert "reader of default reader * " in words
    assert "admin of acme" not in words  # of another tenant
    if not is_postgresql():  # where a test has used each key to see that it is known
        assert words.count("not yet") == 1  # the key for another project
    assert not [key for key in keys.values() if key.split("_", 2)[2] in page.text]
    assert service.path.name in page.text


@pytest.mark.slow
def test_who_may_not_see_everything_is_told_of_nothing_but_the_service(
    operated: tuple[Service, dict[str, str]],
) -> None:
    service, keys = operated
    for who, memories in (("reader", 3), ("other", 0), ("tenant", 0)):
        page = service_page(service, keys[who])
        words = page.cells

        assert str(service.path.parent) not in page.text
        assert f"Memories {memories} " in words
        assert "Deleted memories 90 days after their deletion MEMORY_KEEP_DELETED" in words
        assert "Expired memories never MEMORY_KEEP_EXPIRED" in words
        assert "Requests with an idempotency key 1 day after the request" in words
        assert "Older revisions of a memory beyond the newest 7" in words
        assert ("pg_dump" if is_postgresql() else "agentops-memory backup --to FILE") in words
        if who != "tenant":
            own = ("Key reader of default", "Key admin of default")
            assert "of default" not in words.replace(own[0], "").replace(own[1], "")
            assert not [it for it in page.links if it.startswith(("/ui/erasures", "/metrics"))]


def test_a_slow_request_is_named_with_its_route_and_not_with_what_it_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "SLOW", 0.0)
    with serving(tmp_path / "memory.db") as service:
        service.save("The door is green.")
        service.http.get("/observations/1", params={"secret": "unseen word"})
        words = get(service.http, "/ui/service").cells

    assert "GET /observations/{id}" in words
    assert "POST /observations" in words
    assert "unseen" not in words
