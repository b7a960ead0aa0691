"""Sends the requests of one worker, each of which must be answered, and well."""

import shlex
from dataclasses import dataclass, field
from typing import Any

import requests

TIMEOUT = 60.0  # seconds; a write waits five for its place, and a read is stopped after five
REFUSALS = (503, 507)  # the service is short of something, and says so
MOST = 20  # reproductions of a kind that are kept
LONGEST = 4000  # characters of a body that are shown
FAILURES, HANGS, LOST, UNTRUE = FAULTS = (
    "500s", "hangs", "connections lost", "answers not as described",
)  # fmt: skip

Headers = dict[str, str]
Faults = dict[str, list[str]]
"""What was wrong, by its kind: how to send it again."""


def no_faults() -> Faults:
    return {kind: [] for kind in FAULTS}


@dataclass(slots=True, kw_only=True)
class Asker:
    """A client with a key."""

    url: str
    key: str
    faults: Faults = field(default_factory=no_faults)
    session: requests.Session = field(default_factory=requests.Session)

    def ask(
        self, how: str, path: str, body: bytes = b"", headers: Headers | None = None
    ) -> requests.Response | None:
        """The answer to a request with this body."""
        kind = {"Content-Type": "application/json"} if body else {}
        return self.send(
            {"method": how, "url": self.url + path, "data": body, "headers": kind | (headers or {})}
        )

    def send(self, request: dict[str, Any]) -> requests.Response | None:
        """The answer; None if the library would not send this, or if there was none."""
        request["headers"] = {**request["headers"], "Authorization": f"Bearer {self.key}"}
        try:
            prepared = self.session.prepare_request(requests.Request(**request))
        except (ValueError, TypeError):  # such as a line break in a header
            return None
        try:
            answer = self.session.send(prepared, timeout=TIMEOUT, allow_redirects=False)
        except requests.Timeout:
            self.note(HANGS, command(prepared))
            return None
        except (UnicodeError, ValueError):  # refused while it was sent: nothing was asked
            return None
        except requests.RequestException as error:
            self.note(LOST, f"{command(prepared)}  # {error!r}")
            return None
        if answer.status_code >= 500 and answer.status_code not in REFUSALS:
            said = f"{answer.status_code} {answer.text[:200]}"
            self.note(FAILURES, f"{command(prepared)}  # {said}")
        return answer

    def note(self, kind: str, what: str) -> None:
        """Keep one of a kind, unless there are many."""
        if len(self.faults[kind]) < MOST:
            self.faults[kind].append(what)


def command(request: requests.PreparedRequest) -> str:
    """A request as a command; the key is the reader's own."""
    words = ["curl", "-X", str(request.method), str(request.url)]
    for name, value in request.headers.items():
        secret = "Bearer $KEY" if name == "Authorization" else value
        words += ["-H", f"{name}: {secret!s}"]
    if body := request.body:
        text = body.decode("utf-8", "backslashreplace") if isinstance(body, bytes) else str(body)
        words += ["--data-binary", text[:LONGEST]]
    return shlex.join(words)
