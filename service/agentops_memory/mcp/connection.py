"""One agent's connection: the project that it works on, and the session that it saves into."""

from collections import OrderedDict
from dataclasses import dataclass

from agentops_memory_client.contract.errors import Conflict, NotFound
from agentops_memory_client.contract.models import Observation
from agentops_memory_client.contract.service import MemoryService

from ..settings.profile import Profile

GLOBAL = "global"  # the scope whose memories every project sees
MOST_NAMED = 1000  # connections of one key of which is remembered which session they named


class SessionNames:
    """Which session each connection saves into: one of its own, unless it named another."""

    def __init__(self) -> None:
        self._named: OrderedDict[str, str] = OrderedDict()

    def of(self, own: str) -> str:
        """The session of the connection whose own session that is."""
        if own in self._named:
            self._named.move_to_end(own)
        return self._named.get(own, own)

    def name(self, own: str, session: str) -> None:
        """Let the connection save into that session from now on."""
        self._named[own] = session
        self._named.move_to_end(own)
        if len(self._named) > MOST_NAMED:
            self._named.popitem(last=False)

    def forget(self, own: str) -> None:
        """Let the connection save into its own session again."""
        self._named.pop(own, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What the tools of one connection act on: one project, whatever ids they are given."""

    service: MemoryService
    project: str  # folded
    profile: Profile
    own_session: str
    names: SessionNames
    is_lasting: bool = True  # whether later requests are known to come from it

    @property
    def session(self) -> str:
        """The session that it saves into."""
        return self.names.of(self.own_session)

    async def seen(self, memory: int) -> Observation:
        """A memory that this project sees; NotFound for one of another, as for none."""
        unknown = NotFound(f"There is no memory {memory} in this project.")
        try:
            found = await self.service.get(memory)
        except NotFound as error:
            raise unknown from error
        if found.project != self.project and found.scope != GLOBAL:
            raise unknown
        return found

    async def owned(self, memory: int) -> Observation:
        """A memory of this project; a global one of another project is only read here."""
        found = await self.seen(memory)
        if found.project != self.project:
            raise Conflict(
                f"Memory {memory} is of another project, and global: it is read here only."
            )
        return found
