"""What came of the requests: which failed or were never answered, and how to send them again."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field

MOST = 20  # reproductions of a kind that are kept
LONGEST = 4000  # characters of a body that are shown


@dataclass(slots=True, kw_only=True)
class Tally:
    """What one worker has seen."""

    failures: list[str] = field(default_factory=list)  # answers of 500 and the like
    hangs: list[str] = field(default_factory=list)  # no answer in time
    lost: list[str] = field(default_factory=list)  # a connection that ended without one
    untrue: list[str] = field(default_factory=list)  # answers that the description does not have

    @property
    def is_good(self) -> bool:
        return not (self.failures or self.hangs or self.lost or self.untrue)

    def add(self, kind: list[str], what: str) -> None:
        """Keep one of a kind, unless there are many."""
        if len(kind) < MOST:
            kind.append(what)


def together(tallies: Iterable[Tally]) -> Tally:
    """What all workers have seen."""
    whole = Tally()
    for tally in tallies:
        for kind in ("failures", "hangs", "lost", "untrue"):
            getattr(whole, kind).extend(getattr(tally, kind))
    return whole


def shown(how: str, url: str, headers: Iterable[tuple[str, str]], body: bytes) -> str:
    """A request as a command; the key is the reader's own."""
    told = [(name, value) for name, value in headers if name.lower() != "authorization"]
    command = ["curl", "-X", how, url, "-H", "Authorization: Bearer $KEY"]
    for name, value in told:
        command += ["-H", f"{name}: {value}"]
    if body:
        command += ["--data-binary", body.decode("utf-8", "backslashreplace")[:LONGEST]]
    return shlex.join(command)
