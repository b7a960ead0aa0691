"""Sends the requests of one worker, each of which must be answered, and well."""

from dataclasses import dataclass, field
from typing import Any

import requests

from .tally import Tally, shown

TIMEOUT = 60.0  # seconds; a write waits five for its place, and a read is stopped after five
REFUSALS = (503, 507)  # the service is short of something, and says so

Headers = dict[str, str]


@dataclass(slots=True, kw_only=True)
class Asker:
    """A client with a key."""

    url: str
    key: str
    tally: Tally = field(default_factory=Tally)
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
        command = shown(
            str(prepared.method), str(prepared.url),
            [(name, str(value)) for name, value in prepared.headers.items()], _bytes(prepared.body),
        )  # fmt: skip
        try:
            answer = self.session.send(prepared, timeout=TIMEOUT, allow_redirects=False)
        except requests.Timeout:
            self.tally.add(self.tally.hangs, command)
            return None
        except (UnicodeError, ValueError):  # refused while it was sent: nothing was asked
            return None
        except requests.RequestException as error:
            self.tally.add(self.tally.lost, f"{command}  # {error!r}")
            return None
        if answer.status_code >= 500 and answer.status_code not in REFUSALS:
            said = answer.text[:200]
            self.tally.add(self.tally.failures, f"{command}  # {answer.status_code} {said}")
        return answer


def _bytes(body: object) -> bytes:
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return body if isinstance(body, bytes) else b""
