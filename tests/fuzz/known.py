"""Requests with ids that the service has given: those of a play, as it describes them, and others.

Without the play, which does what agents do, there is little in the service that could be harmed.
"""

import json
from collections import defaultdict
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode

from ..differential.place import Place
from ..differential.play import begun
from ..differential.steps import Answer, Headers
from ..http.test_any_input import mangled
from .asker import Asker

KEPT = 40  # ids of a collection; the oldest are forgotten
MADE = 300  # requests that are sent again with other ids
ANEW = 8  # one of so many is made anew
RECEIPT = "X-Erasure-Id"
MODES = [GenerationMode.POSITIVE] * 2 + [GenerationMode.NEGATIVE]
LISTS = ("data", "memories", "memory_stores", "versions", "observations", "sessions")
UNANSWERED = Answer(status=500, headers=(), text="")


class Known:
    """A caller that remembers what it was told, and goes on from there."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        document = asker.ask("GET", "/openapi.json")
        assert document is not None
        described = schemathesis.openapi.from_dict(document.json())
        found: list[Any] = list(described.get_all_operations())
        self._operations = [operation.ok() for operation in found]
        self._made: list[Any] = []
        self._ids: defaultdict[str, list[str]] = defaultdict(list)
        for operation in self._operations:  # each once, so that a short run leaves out none
            how, path = operation.method.upper(), self._path(0, operation.path)
            self._learn(self._asker.ask(how, path, b"{}" if how != "GET" else b""), how)
        self._place = Place(self, 0)
        self._deeds = begun(self._place)

    def step(self, data: st.DataObject) -> None:
        """Send one request or what a deed of the play takes, and learn from the answers."""
        if data.draw(st.integers(0, 2)) == 0:
            self._place.chance.seed(data.draw(st.integers(0, 1 << 32)))
            self._place.choice(self._deeds)()
            return
        case = self._case(data)
        request = case.as_transport_kwargs(base_url=self._asker.url)
        if "json" in request and data.draw(st.integers(0, 9)) == 0:
            del request["json"]
            request["data"] = data.draw(mangled)
        self._learn(self._asker.send(request), request["method"])

    def ask(
        self, method: str, path: str, body: object = None, headers: Headers | None = None
    ) -> Answer:
        """What the play sends."""
        text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
        content = text.encode("utf-8", "surrogateescape")
        answer = self._asker.ask(method, path, content, headers)
        self._learn(answer, method)
        if answer is None:
            return UNANSWERED
        told = tuple((name.lower(), value) for name, value in answer.headers.items())
        return Answer(status=answer.status_code, headers=told, text=answer.text)

    def do(self, **_: Any) -> Answer:
        """What is no request is left out."""
        return UNANSWERED

    def _case(self, data: st.DataObject) -> Any:
        """A request that the description allows, or just does not; often one made before.

        To make it takes ten times as long as to answer it, and with other ids it is another.
        """
        turn = data.draw(st.integers(0, 1000))
        if self._made and turn % ANEW:
            case = self._made[turn % len(self._made)]
        else:
            operation = data.draw(st.sampled_from(self._operations))
            case = data.draw(operation.as_strategy(data.draw(st.sampled_from(MODES))))
            self._made = [*self._made, case][-MADE:]
        if turn % 7:
            template = case.operation.path.strip("/").split("/")
            path = self._path(turn, case.operation.path).strip("/").split("/")
            case.path_parameters = {
                name.strip("{}"): unquote(value)
                for name, value in zip(template, path, strict=True)
                if name.startswith("{")
            }
        return case

    def _path(self, chosen: int, template: str) -> str:
        """A path by its template, each part that varies of ids that were given."""
        path = ""
        for part in template.strip("/").split("/"):
            ids = self._ids[path] if part.startswith("{") else [part]
            path += "/" + (ids[chosen % len(ids)] if ids else "0")
        return path

    def _learn(self, answer: requests.Response | None, how: str) -> None:
        if answer is None or not answer.ok:
            return
        if receipt := answer.headers.get(RECEIPT):
            self._keep("/erasures", receipt)
        if "json" not in answer.headers.get("content-type", ""):
            return
        path = urlsplit(answer.url).path.rstrip("/").removesuffix("/recent")
        for row in _rows(answer.json()):
            if how == "POST" or not path.endswith(str(row.get("id"))):
                self._keep(path, row.get("id"))
            self._keep("/projects", row.get("project"))

    def _keep(self, collection: str, id_: object) -> None:
        known = self._ids[collection]
        if id_ is None or (text := quote(str(id_), safe="")) in known:
            return
        known.append(text)
        del known[:-KEPT]


def _rows(told: object) -> list[dict[str, Any]]:
    """What in an answer may have an id."""
    if isinstance(told, dict):
        rows = [row for name in LISTS if isinstance(told.get(name), list) for row in told[name]]
        told = [told, *rows]
    return [row for row in told if isinstance(row, dict)] if isinstance(told, list) else []
