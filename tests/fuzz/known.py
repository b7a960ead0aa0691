"""Requests with ids that the service has given; bodies as it describes them, and as nobody does."""

from collections import defaultdict
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode

from ..http.test_any_input import mangled
from .asker import Asker
from .honest import honest

KEPT = 40  # ids of a collection; the oldest are forgotten
MADE = 300  # requests that are sent again with other ids
ANEW = 8  # one of so many is made anew
RECEIPT = "X-Erasure-Id"
MODES = [GenerationMode.POSITIVE] * 2 + [GenerationMode.NEGATIVE]
LISTS = ("data", "memories", "memory_stores", "versions", "observations", "sessions")


class Known:
    """A caller that remembers what it was told, and goes on from there."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        document = asker.ask("GET", "/openapi.json")
        assert document is not None
        described = schemathesis.openapi.from_dict(document.json())
        found: list[Any] = list(described.get_all_operations())
        self._operations = [operation.ok() for operation in found]
        self._honest = honest(self.place)
        self._made: list[Any] = []
        self._ids: defaultdict[str, list[str]] = defaultdict(list)
        self._see_all()

    def _see_all(self) -> None:
        """Each route once, so that a short run leaves out none."""
        for operation in self._operations:
            how, path = operation.method.upper(), self.place(0, operation.path)
            self._learn(self._asker.ask(how, path, b"{}" if how != "GET" else b""), how)

    def step(self, data: st.DataObject) -> None:
        """Send one request, and learn from the answer."""
        if data.draw(st.integers(0, 2)) == 0:
            how, path, body = data.draw(self._honest)
            self._learn(self._asker.ask(how, path, body), how)
            return
        case = self._case(data)
        request = case.as_transport_kwargs(base_url=self._asker.url)
        if "json" in request and data.draw(st.integers(0, 9)) == 0:
            del request["json"]
            request["data"] = data.draw(mangled)
        self._learn(self._asker.send(request), request["method"])

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
            case.path_parameters = self._placed(turn, case.operation.path)
        return case

    def place(self, chosen: int, template: str) -> str:
        """A path by its template, each part that varies of ids that were given."""
        path = ""
        for part in template.strip("/").split("/"):
            ids = self._ids[path] if part.startswith("{") else [part]
            path += "/" + (ids[chosen % len(ids)] if ids else "0")
        return path

    def _placed(self, chosen: int, template: str) -> dict[str, str]:
        """Values that were given for the parts of a path that vary."""
        path = self.place(chosen, template).strip("/").split("/")
        parts = zip(template.strip("/").split("/"), path, strict=True)
        return {name.strip("{}"): unquote(value) for name, value in parts if name.startswith("{")}

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
