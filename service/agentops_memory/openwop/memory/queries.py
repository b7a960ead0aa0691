"""What a request of OpenWOP says beside its body: refs, bounds, cursors."""

import re
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from ...errors import BadFields
from ...http.requests import exact_parameter
from ...memory.model.space import MemoryRef
from ...recall.text.normalization import REPLACEMENT
from ..refs import Offset
from ..runs import RunId

SHOWN = 100  # rows of a page
MOST_LISTED = 1000  # refs, events

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

    def required_ref(self) -> MemoryRef:
        """The ref that is read, which is not meant where it is not said."""
        said = self.text("memoryRef", allows_nul=True)
        if said is None:
            self._faults.append(("memoryRef", "is required"))
        return MemoryRef(said or "")

    def after_sequence(self) -> int:
        """The sequence after which events follow; all of them where it is not said."""
        said = self.number("after")
        return -1 if said is None else said

    def after_event(self) -> Offset:
        return Offset(self.number("after") or 0)

    def done(self) -> None:
        """Refuse with BadFields if something is wrong."""
        if self._faults:
            raise BadFields(self._faults)


def run_in_path(request: Request) -> RunId:
    """The id in the path, exactly; BadFields for what is no text."""
    return RunId(text_in_path(request, "runId"))


def text_in_path(request: Request, name: str) -> str:
    """The same, of anything."""
    text: str = request.path_params[name]
    if REPLACEMENT in text:  # which stands for bytes that are no UTF-8, unless it was sent
        sent = unquote_to_bytes(request.scope["raw_path"])
        if sent.decode(errors="replace") != sent.decode(errors="surrogateescape"):
            raise BadFields([(name, "must be UTF-8")])
    return text
