"""One worker: requests of its kind until the time is over, the same ones for the same seed."""

import itertools
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, Unsatisfiable

from .agents import Agents
from .asker import Asker
from .described import described
from .known import Known
from .tally import Tally
from .wild import Wild

AT_ONCE = 50  # requests of one turn; each has a seed of its own
TURNS = 100_000  # that a worker can take until it comes to the seeds of the next


class Kind(Protocol):
    """A way to make requests."""

    def step(self, data: st.DataObject) -> None: ...


KINDS: dict[str, Callable[[Asker], Kind]] = {"known": Known, "agents": Agents, "wild": Wild}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a worker is to do."""

    kind: str
    url: str
    key: str
    seed: int
    seconds: float


def work(order: Order) -> Tally:
    """What one worker sees in this time."""
    warnings.simplefilter("ignore")  # in a process of its own
    if order.kind not in KINDS:
        return described(order.url, order.key, seed=order.seed, seconds=order.seconds)
    asker = Asker(url=order.url, key=order.key)
    maker, end = KINDS[order.kind](asker), time.monotonic() + order.seconds
    for turn in itertools.count(order.seed * TURNS):
        if time.monotonic() >= end:
            break
        _turn(maker, turn)
    return asker.tally


def _turn(maker: Kind, number: int) -> None:
    @seed(number)
    @settings(
        max_examples=AT_ONCE, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def step(data: st.DataObject) -> None:
        maker.step(data)

    try:
        step()
    except (Unsatisfiable, Flaky):  # what is drawn follows what the service has answered
        return
