"""The discovery of a host that runs the workflows of the seams, and forks runs."""

from collections.abc import Callable, Iterable
from json import loads

from agentops_memory.http.bodies import written
from agentops_memory.light import dataclass
from agentops_memory.openwop.routes import Discovery

REPLAY = {"supported": True, "modes": ["replay"]}  # no branch: nothing is executed here


@dataclass(frozen=True, kw_only=True)
class SeamDiscovery(Discovery):
    """The service's own, with the workflows that can be run now."""

    fixtures: Callable[[], Iterable[str]]

    def content(self) -> bytes:
        served = loads(super().content())
        served["replay"] = served["capabilities"]["replay"] = REPLAY
        return written(served | {"fixtures": list(self.fixtures())})
