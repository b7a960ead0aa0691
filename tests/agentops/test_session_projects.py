"""A session of another project: what is written goes on as ever, and the answer says so."""

import json
import logging
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory_client import MemoryServiceWarning, Message

from ..support.asking import KINDS, asking
from ..support.callers import made_key
from ..support.engines import storage_at
from ..support.requirements import requirement
from ..support.service import Service, observation, serving
from ..support.terminal import Terminal

HEADER = "x-memory-warning"
MONDAY = 'session "monday" belongs to the project "cafe"'
HELLO = {"role": "user", "content": "hello"}
CONSOLE = "https://console.example"

WRITES: dict[str, tuple[str, dict[str, Any]]] = {
    "start": ("/sessions", {"id": "monday", "project": "shop"}),
    "save": ("/observations", observation("We open at nine.", session_id="monday", project="shop")),
    "append": ("/sessions/monday/messages?project=shop", {"messages": [HELLO]}),
    "end": ("/sessions/monday/end?project=shop", {"messages": [HELLO]}),
}
SUMMARY = "Session: 1 messages (1 user, 0 assistant). Started with: hello"
ANSWERS = {
    "start": (201, '{"id":"monday","project":"cafe","started_at":"...","message_count":0}'),
    "save": (201, '{"id":1,"action":"created","revision_count":1,"duplicate_count":1}'),
    "append": (204, ""),
    "end": (200, f'{{"session_id":"monday","summary":"{SUMMARY}","message_count":1}}'),
}


@pytest.fixture
def service(service: Service) -> Service:
    """One whose session is of a project already."""
    assert _opened(service, "monday", "cafe").status_code == 201
    return service


def _opened(service: Service, session: str, project: str, **headers: str) -> httpx.Response:
    body = {"id": session, "project": project}
    return service.http.post("/sessions", json=body, headers=headers)


def _written(service: Service, write: str, **headers: str) -> httpx.Response:
    path, body = WRITES[write]
    return service.http.post(path, json=body, headers=headers)


@requirement("agentops:sessions:of-another-project")
def test_a_write_of_a_session_of_its_own_project_has_no_warning(service: Service) -> None:
    asked = [
        ("/sessions", {"id": "monday", "project": " CAFE"}),
        ("/sessions", {"id": "tuesday", "project": "shop"}),
        ("/observations", observation("One.", session_id="monday", project="Cafe ")),
        ("/observations", observation("Two.", session_id="wednesday", project="shop")),
        ("/sessions/monday/messages", {"messages": [HELLO]}),
        ("/sessions/monday/messages?project=cafe", {"messages": [HELLO]}),
        ("/sessions/monday/end", {}),
        ("/sessions/thursday/end?project=shop", {}),
    ]
    for path, body in asked:
        answer = service.http.post(path, json=body)

        assert answer.is_success
        assert HEADER not in answer.headers, path


@pytest.mark.slow
@requirement("agentops:sessions:of-another-project")
def test_a_write_of_a_session_of_another_project_is_answered_with_a_warning_each_time(
    path: Path,
) -> None:
    for number, write in enumerate(WRITES):
        with serving(path.with_name(f"{number}.db")) as service:
            assert _opened(service, "monday", "cafe").status_code == 201
            first, again = (_written(service, write, **{"Idempotency-Key": "k"}) for _ in range(2))

            status, body = ANSWERS[write]
            assert first.status_code == status
            assert re.sub('[^"]*Z"', '..."', first.text) == body
            assert again.headers["idempotent-replayed"] == "true"
            assert (again.status_code, again.content) == (first.status_code, first.content)
            assert again.headers[HEADER] == first.headers[HEADER] == MONDAY


@pytest.mark.slow
@requirement("agentops:sessions:of-another-project")
def test_no_warning_names_a_project_to_a_key_without_access_or_that_lost_it(
    service: Service,
) -> None:
    keys = [
        made_key(service.path, "writer", projects=of)
        for of in [("shop",), ("shop", "caf*"), ("*",), ("shop", "cafe")]
    ]
    other = made_key(service.path, tenant="other")
    for write in WRITES:
        refused, *answered = (_written(service, write, **{"x-api-key": it}) for it in keys)
        elsewhere = _written(service, write, **{"x-api-key": other})

        assert refused.status_code == 403
        assert HEADER not in refused.headers
        assert "cafe" not in refused.text
        assert [answer.headers[HEADER] for answer in answered] == [MONDAY] * 3
        assert (elsewhere.is_success, HEADER in elsewhere.headers) == (True, False)

    sent = {write: {"x-api-key": keys[3], "Idempotency-Key": write} for write in WRITES}
    for write in WRITES:
        assert _written(service, write, **sent[write]).headers[HEADER] == MONDAY

    Terminal(storage_at(service.path)).say("projects", "rename", "cafe", "vault")

    for write in WRITES:
        again = _written(service, write, **sent[write])
        assert again.status_code == (201 if write == "save" else 403)
        assert "vault" not in str(again.headers) + again.text


@requirement("agentops:sessions:of-another-project")
def test_a_name_in_a_warning_is_quoted_escaped_and_cut(service: Service) -> None:
    names = {
        "é": r'"\u00e9"', 'a "quoted" \\ one': r'"a \"quoted\" \\ one"',
        "a\r\nX-Evil: 1": r'"a\r\nX-Evil: 1"', "😀" * 500: '"' + r"\ud83d\ude00" * 100 + '..."',
        "\x7f\x85\u202e": r'"\u007f\u0085\u202e"',
    }  # fmt: skip
    sessions = [{"id": name, "project": f"p {name[:150]}"} for name in names]
    service.http.post("/import", json={"sessions": sessions}).raise_for_status()

    for name, shown in names.items():
        answer = _opened(service, name, "shop")

        assert answer.status_code == 201
        assert answer.headers[HEADER].startswith(f"session {shown} belongs to the project ")
        assert answer.headers[HEADER].isascii()
        assert answer.headers[HEADER].isprintable()
        assert len(answer.headers[HEADER]) < 2_600
        assert "x-evil" not in answer.headers


@requirement("agentops:sessions:of-another-project")
def test_a_warning_has_no_secret(service: Service) -> None:
    secret = "AKIA" + "IOSFODNN7REALKEY"
    _opened(service, f"of {secret}", "cafe")

    answer = _opened(service, f"of {secret}", "shop")

    assert secret not in answer.headers[HEADER]
    assert answer.headers[HEADER].endswith('belongs to the project "cafe"')


def test_a_page_may_read_the_warning(path: Path) -> None:
    with serving(path, MEMORY_ALLOWED_ORIGINS=CONSOLE) as service:
        answer = _opened(service, "monday", "cafe", Origin=CONSOLE)

    assert HEADER in answer.headers["access-control-expose-headers"].lower()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_warns_at_each_call(
    service: Service, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with asking(kind, service.url) as memory, caplog.at_level(logging.WARNING):
        calls: list[Callable[[], Any]] = [
            lambda: memory.start_session("monday", "shop"),
            lambda: memory.save(
                session_id="monday", project="shop", type="note", title="Nine", content="We open."
            ),
            lambda: memory.append_messages("monday", [Message(**HELLO)], project="shop"),
            lambda: memory.end_session("monday", project="shop"),
        ]
        for call in calls:
            caplog.clear()
            with pytest.warns(MemoryServiceWarning) as heard:
                answer = call()

            assert [str(each.message) for each in heard] == [answer.warning] == [MONDAY]
            logged = [it for it in caplog.records if it.name == "agentops_memory.client"]
            assert [vars(it)["warning"] for it in logged] == [MONDAY]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MemoryServiceWarning)
            assert calls[0]().project == "cafe"
        assert memory.start_session("monday", "cafe").warning is None


@pytest.mark.parametrize("place", ["file", "service"])
def test_the_command_line_prints_the_warning_once(service: Service, place: str) -> None:
    where = {"MEMORY_URL": service.url} if place == "service" else storage_at(service.path)

    done = Terminal(where).run(
        "save", "Nine", "We open.", "--project", "shop", "--session", "monday", "--json"
    )

    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["action"] == "created"
    assert done.stderr.splitlines() == [f"Warning: {MONDAY}."]
