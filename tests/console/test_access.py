"""Who sees the console: a key as password, forms of its own pages alone, and what it tells."""

import base64
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..http.test_security_headers import EXPECTED, told
from ..support.callers import made_key
from ..support.pages import Page, get, press
from ..support.process import served, until
from ..support.service import Service, observation, serving

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


def test_a_browser_is_led_from_the_root_and_a_program_is_answered_as_ever(service: Service) -> None:
    led = service.http.get("/", headers=BROWSER)
    program = service.http.get("/")

    assert (led.status_code, led.headers["location"]) == (307, "/ui")
    assert (program.status_code, program.json()) == (
        404,
        {"error": "There is nothing at this path."},
    )
    assert service.http.post("/", headers=BROWSER).json() == program.json()


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


def test_what_pages_load_is_the_consoles_own(service: Service) -> None:
    for name, kind in (("console.css", "text/css"), ("console.js", "text/javascript")):
        answer = service.http.get(f"/ui/static/{name}")
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert len(service.http.get("/ui/static/console.js").content) <= 5 * 1024
    assert service.http.get("/ui/static/page.py").status_code == 404


def test_a_key_is_the_password_below_ui_alone(closed: tuple[Service, dict[str, str]]) -> None:
    service, keys = closed
    refused = service.http.get("/ui/memories/1")
    with signed_in(service, keys["reader"]) as http:
        page = get(http, "/ui/memories/1")

    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, CHALLENGE)
    assert "green" not in refused.text
    assert "Sign in with an API key" in refused.text
    assert service.http.get("/stats").headers["www-authenticate"] == "Bearer"
    assert service.http.get("/ui/nowhere").status_code == 401
    assert "The door is green." in page.text


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

    assert buttons == {"reader": (False, False), "writer": (True, False), "admin": (True, True)}


def test_a_project_of_others_is_as_unknown(closed: tuple[Service, dict[str, str]]) -> None:
    service, keys = closed
    with signed_in(service, keys["other"]) as http:
        foreign, unknown = http.get("/ui/memories/1"), http.get("/ui/memories/999")

    assert foreign.status_code == unknown.status_code == 404
    assert foreign.text == unknown.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 303),  # as a browser hides it, where pages say `no-referrer`
        ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Host": "evil.example"}, 403),
    ],
)
def test_a_form_of_another_site_is_refused(
    service: Service, headers: dict[str, str], status: int
) -> None:
    service.save("The door is green.")
    form = get(service.http, "/ui/memories/1").form("Pin")

    answer = service.http.post(form.action, data=dict(form.fields), headers=headers)

    assert answer.status_code == status
    pinned = service.http.get("/observations/1").json().get("pinned", False)
    assert pinned == (status == 303)


def test_a_hidden_origin_is_welcome_at_the_consoles_forms_alone(service: Service) -> None:
    assert service.http.get("/stats", headers={"Origin": "null"}).status_code == 403


@pytest.mark.parametrize("token", ["", "x", "1-2", "9" * 30 + "-a", "1893499200-" + "0" * 64])
def test_a_form_without_its_token_comes_back_filled_in(service: Service, token: str) -> None:
    service.save("The door is green.")
    page = get(service.http, "/ui/memories/1/edit")

    back = press(service.http, page, "Save", {"content": 'Blue & "red"\nnow', "token": token})

    assert back.status == 403
    assert service.http.get("/observations/1").json()["content"] == "The door is green."
    saved = press(service.http, back, "Send it again")
    assert (saved.status, saved.url.path) == (200, "/ui/memories/1")
    assert service.http.get("/observations/1").json()["content"] == 'Blue & "red"\nnow'


def test_a_form_that_was_open_for_days_comes_back(service: Service) -> None:
    service.save("The door is green.")
    page = get(service.http, "/ui/memories/1")
    service.clock.advance(days=2)

    back = press(service.http, page, "Pin")

    assert (back.status, back.form("Send it again").action) == (403, "/ui/memories/1")
    assert press(service.http, back, "Send it again").status == 200
    assert service.http.get("/observations/1").json()["pinned"] is True


def test_what_comes_back_is_still_a_decision_on_what_was_seen(service: Service) -> None:
    service.save("The door is green.")
    page = get(service.http, "/ui/memories/1")
    service.clock.advance(days=2)
    service.http.patch("/observations/1", json={"content": "The door is red."}).raise_for_status()

    both = press(service.http, press(service.http, page, "Delete"), "Send it again")

    assert (both.status, "has changed since you opened the page" in both.text) == (409, True)
    assert service.http.get("/observations/1").status_code == 200


def test_an_open_service_says_nothing_of_keys_at_the_foot(service: Service) -> None:
    page = get(service.http, "/ui/memories")

    assert "answers 401" not in page.text
    twins = page.texts[page.texts.index("The same as JSON") :]
    assert [service.http.get(it).status_code for it in twins if it.startswith("/")] == [200, 200]


def test_a_token_of_one_key_is_none_of_another(closed: tuple[Service, dict[str, str]]) -> None:
    service, keys = closed
    with signed_in(service, keys["writer"]) as http:
        form = get(http, "/ui/memories/1").form("Pin")
    with signed_in(service, keys["admin"]) as http:
        assert http.post(form.action, data=dict(form.fields)).status_code == 403


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


def test_a_form_that_is_none_is_refused(service: Service) -> None:
    service.save("The door is green.")
    many = "&".join(f"a{i}=1" for i in range(600))
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for body in (many, "\xff=%ff&;;&&=", "{}"):
        answer = service.http.post("/ui/memories/1", content=body.encode("latin-1"), headers=kind)
        assert answer.status_code in (400, 403)
    large = service.http.post("/ui/memories/1", content=b"a" * (2**20 + 1), headers=kind)
    assert large.status_code == 413


def test_the_password_is_read_as_the_browser_encodes_it(
    closed: tuple[Service, dict[str, str]],
) -> None:
    service, keys = closed
    for user in ("", "Jörg", "a" * 300):
        pair = base64.b64encode(f"{user}:{keys['reader']}".encode()).decode()
        headers = {"Authorization": f"Basic {pair}"}
        assert service.http.get("/ui/memories/1", headers=headers).status_code == 200


def test_a_service_that_drains_still_shows_pages_and_takes_forms(path: Path) -> None:
    with served(path, MEMORY_DRAIN="1h") as (process, http):
        http.post("/observations", json=observation("The door is green.")).raise_for_status()
        process.send(signal.SIGTERM)
        until(lambda: http.get("/health").status_code == 503)

        page = press(http, get(http, "/ui/memories/1"), "Pin")

        assert (page.status, "Pinned" in page.text) == (200, True)
