"""What a request of the seams says beside its body."""

import re
from typing import Any

from starlette.requests import Request

from agentops_memory.errors import BadFields
from agentops_memory.http.bodies import exact_parameter
from agentops_memory.memory.access import Caller
from agentops_memory.openwop.api import BODIES, text_in_path
from agentops_memory.openwop.runs import RunId
from agentops_memory.telemetry import Cut, annotate

JsonObject = dict[str, Any]

SHOWN = 100  # rows of a page
MOST_LISTED = 1000  # refs, events
SHOWN_NAME = 100  # code points of a ref, or of an id, in a span

_NUMBER = re.compile(r"\d+", re.ASCII)
_DIGITS = 18  # that are read: a larger number is as good as this one


class Asked:
    """The parameters of a request; what is wrong with them is told at once."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._faults: list[tuple[str, str]] = []

    def text(self, name: str, *, allows_nul: bool = False) -> str | None:
        """A text, exactly; an empty one is unset."""
        try:
            return exact_parameter(self._request, name, allows_nul=allows_nul)
        except ValueError:
            self._faults.append((name, "must be UTF-8 without NUL"))
            return None

    def number(self, name: str, least: int = 0) -> int | None:
        """A whole number, at least so large."""
        said = self.text(name)
        if said is None:
            return None
        number = int(said.lstrip("0")[:_DIGITS] or 0) if _NUMBER.fullmatch(said) else -1
        if number < least:
            self._faults.append((name, f"must be a whole number, {least} or more"))
        return number

    def limit(self, usual: int, most: int) -> int:
        """How many: as usual for 0 and where it is not said, and no more than the most."""
        return min(self.number("limit") or usual, most)

    def after_sequence(self) -> int:
        """The sequence after which events follow; all of them where it is not said."""
        said = self.number("after")
        return -1 if said is None else said

    def done(self) -> None:
        """Refuse with BadFields if something is wrong."""
        if self._faults:
            raise BadFields(self._faults)


async def asked_once(request: Request, operation: str) -> Caller:
    """Whose request it is, under its idempotency key, which is of one operation."""
    return await BODIES.caller(request, holder=f"openwop {operation}")


def run_of(request: Request) -> RunId:
    """The run in the path, which the span tells."""
    run = RunId(text_in_path(request, "runId"))
    annotate({"openwop.run_id": Cut(run, SHOWN_NAME)})
    return run


def noted(
    ref: str, *, run: str | None = None, node: str | None = None, entry: str | None = None
) -> None:
    """What the span tells: names alone, each with its secrets taken out."""
    names = {
        "memory.ref": ref, "openwop.run_id": run, "openwop.node_id": node, "memory.entry.id": entry,
    }  # fmt: skip
    annotate({name: None if it is None else Cut(it, SHOWN_NAME) for name, it in names.items()})
