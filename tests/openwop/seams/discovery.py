"""The discovery of a host that runs the workflows of the seams, and forks runs."""

from collections.abc import Iterable

from agentops_memory.openwop.api import Serving
from agentops_memory.openwop.routes import JsonObject, discovery

REPLAY = {"supported": True, "modes": ["replay"]}  # no branch: nothing is executed here


def seam_discovery(serving: Serving, fixtures: Iterable[str]) -> JsonObject:
    """The service's own, with the workflows that can be run now."""
    served = discovery(serving)
    both = {"capabilities": served["capabilities"] | {"replay": REPLAY}, "replay": REPLAY}
    return served | both | {"fixtures": list(fixtures)}
