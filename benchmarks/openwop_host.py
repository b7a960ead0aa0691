"""A host of OpenWOP that asks a service, and how long it takes."""

import json
from collections.abc import Callable
from functools import partial
from itertools import count, cycle
from typing import Any

from .client import Client, get, post
from .openwop_refs import texts

H = "/v1/host/agentops-memory"

Work = Callable[[], object]


class Host:
    """A host that asks a service on a connection of its own."""

    def __init__(self, port: int, seed: int = 0) -> None:
        self.client = Client(port)
        self.numbers, self.texts = count(), cycle(texts(seed, 500))

    def ask(self, path: str, body: object) -> Any:
        return json.loads(self.client.ask(post(path, body)))

    def text(self) -> str:
        """A text that is not stored yet."""
        return f"{next(self.numbers)} {next(self.texts)}"

    def open(self) -> str:
        run: str = self.ask(f"{H}/runs", {})["runId"]
        return run

    def put(self, ref: str = "mem://new", **fields: object) -> Any:
        return self.ask(f"{H}/memory", {"memoryRef": ref, "content": self.text(), **fields})

    def save(self) -> None:
        body = {"session_id": "s", "project": "project-new", "type": "note", "title": "t"}
        self.ask("/observations", body | {"content": self.text()})

    def register(self, run: str, number: int) -> None:
        value = {"secretId": f"s{number}", "value": f"correct-horse-{number:08}"}
        self.ask(f"{H}/runs/{run}/secrets", value)

    def end(self, run: str) -> None:
        self.ask(f"{H}/runs/{run}/end", {"status": "completed"})

    def listing(self, ref: str, **query: str) -> Work:
        return partial(self.client.ask, get(f"{H}/memory", memoryRef=ref, limit=100, **query))
