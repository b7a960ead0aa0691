"""What a service has generated, called by one name in both: where it first appeared.

The names look like what they stand for, so that a named answer is still JSON.
"""

import re
from collections.abc import Callable
from itertools import pairwise

STEP = 10_000  # names of one answer
NUMBERS = 7_000_000_000_000  # above any number that a service would give

_HEX = r"[0-9a-f]"
_GENERATED = re.compile(
    rf"(?<![0-9a-f-])(?P<uid>{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}})(?![0-9a-f-])"
    rf"|(?<!{_HEX})(?P<digits>{_HEX}{{32}})(?!{_HEX})"
    rf"|(?<=mcp-)(?P<connection>{_HEX}{{24}})(?!{_HEX})"
    r'|(?<="next_page":")(?P<page>[^"]+)(?=")'
    r'|(?<="next":")(?P<next>[^"]+)(?=")'
    r'|(?<="sequence":)(?P<sequence>\d+)(?=,"intent_id":)'
)
_IDS = re.compile(
    r'"(?:id|observation_id|after_id)":\d+'
    r'|"(?:ids|supersedes|superseded|superseded_by|observation_ids)":\[[\d,]*\]'
    r"|supersedes=\[[\d, ]*\]"
    r"|[Mm]emor(?:y|ies) \d+(?:(?:, | and )\d+)*|#\d+"
)
_NUMBER = re.compile(r"\d+")
_NAME = re.compile(
    r"f{20}(?P<digits>\d{12})"
    r"|f{8}-f{4}-f{4}-f{4}-(?P<uid>\d{12})"
    r"|f{12}(?P<connection>\d{12})"
    r"|page(?P<page>\d{12})page"
    r"|(?<!\d)7(?P<number>\d{12})(?!\d)"
)


class Names:
    """The names of one service's own."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], int] = {}
        self._real: dict[tuple[str, int], str] = {}
        self._next = 0

    def naming(self, step: int) -> Callable[[str], str]:
        """What gives texts of one answer names for what was generated, new ones by the step."""
        self._next = step * STEP
        return self._named

    def real(self, text: str) -> str:
        """The text as the service understands it; a name of nothing stays."""
        return _NAME.sub(self._resolved, text)

    def _resolved(self, found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        digits = int(found[kind])
        if kind == "number":
            return self._real.get(("memory", digits)) or self._real.get(
                ("sequence", digits), found[0]
            )
        if kind != "uid":
            return self._real.get((kind, digits), found[0])
        real = self._real.get(("digits", digits))
        return found[0] if real is None else _dashed(real)

    def _named(self, text: str) -> str:
        text = _GENERATED.sub(self._generated, text)
        return _IDS.sub(lambda found: _NUMBER.sub(self._number, found[0]), text)

    def _generated(self, found: re.Match[str]) -> str:
        kind, text = str(found.lastgroup), found[0]
        if _NAME.fullmatch(text):
            return text
        if kind in ("page", "next"):
            return f"page{self._name('page', text):012}page"
        if kind == "sequence":
            return f"{NUMBERS + self._name(kind, text)}"
        if kind == "connection":
            return f"{'f' * 12}{self._name(kind, text):012}"
        name = f"{'f' * 20}{self._name('digits', text.replace('-', '')):012}"
        return _dashed(name) if kind == "uid" else name

    def _number(self, found: re.Match[str]) -> str:
        if int(found[0]) == 0 or int(found[0]) >= NUMBERS:
            return found[0]
        return f"{NUMBERS + self._name('memory', found[0])}"

    def _name(self, kind: str, real: str) -> int:
        name = self._names.setdefault((kind, real), self._next)
        if name == self._next:
            self._real[kind, name] = real
            self._next += 1
        return name


def _dashed(digits: str) -> str:
    cuts = (0, 8, 12, 16, 20, 32)
    return "-".join(digits[at:to] for at, to in pairwise(cuts))
