"""`python -m benchmarks.soak`: at the end of a long mixed run, memory and log are as at half."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from .agent import PROJECTS, Agent
from .client import Answer
from .crowd import Conversation, Crowd
from .figures import Figure, at_most, show
from .plan import Bench, parser, prepared, subject
from .process import Running
from .seeding import Size

CONNECTIONS = 8
PARTS = 10  # after each of which a line is printed
PRESENT = Size(rows=PROJECTS * 100, projects=PROJECTS)

GROWTH = at_most(1.1)
ERRORS = at_most(0)


def main() -> None:
    """Seed, start, drive, print."""
    options = parser("benchmarks.soak", __doc__)
    options.add_argument("--requests", type=int, help="in all")
    given = options.parse_args()
    with prepared(given) as made:
        show(soak(made, given.requests or made.plan.soak))


def soak(made: Bench, requests: int) -> Iterator[Figure]:
    """Rows level off: keys and sessions come again, and what is saved anew is erased."""
    with subject(made, PRESENT) as asked:
        agents = [Agent(number, made.seed) for number in range(CONNECTIONS)]
        watch = _Watch(service=asked.service, requests=requests)
        with closing(Crowd(asked.service.port, CONNECTIONS)) as crowd:
            crowd.converse([_conversation(agent, watch) for agent in agents])
    half, end = watch.parts[PARTS // 2 - 1], watch.parts[PARTS - 1]
    for name, before, after in (
        ("memory", half.resident, end.resident),
        ("write-ahead log", half.wal, end.wal),
    ):
        yield Figure(
            what=f"{name} after {requests:,} mixed requests against half",
            value=after / before,
            aim=GROWTH,
            beside=f"{after:.1f} MiB against {before:.1f} MiB",
        )
    yield Figure(
        what=f"errors among {requests:,} mixed requests",
        value=watch.errors.total(),
        aim=ERRORS,
        unit="",
        beside=watch.told(),
    )


def _conversation(agent: Agent, watch: "_Watch") -> Conversation:
    while watch.goes_on():
        answer = yield agent.request()
        agent.hear(answer)
        watch.count(answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    resident: float  # MiB
    wal: float  # MiB


@dataclass(slots=True, kw_only=True)
class _Watch:
    """What is asked and answered, and what the service takes meanwhile."""

    service: Running
    requests: int
    begun: int = 0
    answered: int = 0
    parts: list[_Part] = field(default_factory=list)
    errors: Counter[int] = field(default_factory=Counter)
    since: float = field(default_factory=time.perf_counter)
    first_error: str = ""

    def goes_on(self) -> bool:
        """Whether one more request is wanted; it counts as made."""
        self.begun += 1
        return self.begun <= self.requests

    def count(self, answer: Answer) -> None:
        """Count it, and print a line when a part is over."""
        self.answered += 1
        if not answer.is_good:
            self.errors[answer.status] += 1
            self.first_error = self.first_error or answer.body.decode("utf-8", "replace")
        if self.answered * PARTS // self.requests > len(self.parts):
            self._note()

    def told(self) -> str:
        """The errors in words."""
        if not self.errors:
            return "none"
        counts = ", ".join(f"{count} of {status}" for status, count in self.errors.items())
        return f"{counts}; the first: {self.first_error}"

    def _note(self) -> None:
        resident, _ = self.service.memory()
        part = _Part(resident=resident, wal=self.service.wal())
        self.parts.append(part)
        now = time.perf_counter()
        rate, self.since = self.requests / PARTS / (now - self.since), now
        print(
            f"    {self.answered:>9,} requests  {rate:6,.0f} a second"
            f"  resident {part.resident:6.1f} MiB  WAL {part.wal:6.1f} MiB"
            f"  file {self.service.path.stat().st_size >> 20:5,} MiB  errors: {self.told()}",
            flush=True,
        )


if __name__ == "__main__":
    main()
