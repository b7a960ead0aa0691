"""An agent's connection: its project, the session that it saves into, and what each tool takes."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agentops_memory_client.contract.errors import Conflict, NotFound
from agentops_memory_client.contract.models import Observation
from agentops_memory_client.contract.service import MemoryService

from ..memory import redactor
from ..memory.model.memory import MAX_SUPERSEDED, MAX_TTL
from ..settings.parsing import Profile

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
        self._named[own] = session
        self._named.move_to_end(own)
        if len(self._named) > MOST_NAMED:
            self._named.popitem(last=False)

    def forget(self, own: str) -> None:
        self._named.pop(own, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What the tools of one connection act on: one project, whatever ids they get."""

    service: MemoryService
    project: str  # folded
    profile: Profile
    own_session: str
    names: SessionNames
    clock: Callable[[], datetime]
    is_lasting: bool = True  # whether later requests are known to come from it

    @property
    def session(self) -> str:
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
        found = await self.seen(memory)
        if found.project != self.project:
            raise Conflict(f"Memory {memory} belongs to another project, so it is read-only here.")
        return found


TYPES = "decision, discovery, bugfix, pattern, architecture, config, learning or preference"
MOST_HITS = 50
MOST_NEIGHBOURS = 20
MOST_MESSAGES = 1000

Id = Annotated[int, Field(ge=1, le=(1 << 63) - 1, description="The id of a memory.")]
Type = Annotated[str, Field(min_length=1, max_length=redactor.MAX_TYPE, description=f"{TYPES}.")]
Title = Annotated[
    str,
    Field(min_length=1, max_length=redactor.MAX_TITLE, description="One line that sums it up."),
]
Content = Annotated[
    str,
    Field(
        min_length=1, max_length=redactor.MAX_CONTENT,
        description="What is worth knowing later: what, why, where, and its consequences.",
    ),
]  # fmt: skip
Tags = Annotated[
    list[Annotated[str, Field(max_length=redactor.MAX_TAG)]],
    Field(max_length=redactor.MAX_TAGS, description="Keywords to find it by."),
]
SessionId = Annotated[str, Field(min_length=1, max_length=redactor.MAX_SESSION_ID)]


class Arguments(BaseModel):
    """The arguments of a tool; unknown ones are refused, so that none is lost in silence."""

    model_config = ConfigDict(extra="forbid")


class Nothing(Arguments):
    """No arguments."""


class Save(Arguments):
    title: Title
    content: Content
    type: Type = "discovery"
    tags: Tags = []
    topic_key: str | None = Field(
        None, max_length=redactor.MAX_KEY,
        description="The name of something that changes over time, such as architecture/auth: a "
        "later save with the same key replaces this memory and keeps its history.",
    )  # fmt: skip
    scope: str | None = Field(
        None, max_length=redactor.MAX_SCOPE,
        description="project (the default), or global to share it with every project.",
    )  # fmt: skip

    ttl: int | None = Field(
        None, ge=1, le=MAX_TTL,
        description="Seconds until it is no longer true and is forgotten, if known.",
    )  # fmt: skip
    pinned: bool = Field(
        False, description="A rule to follow always: first in every context. Rare."
    )
    supersedes: list[Id] = Field(
        [], max_length=MAX_SUPERSEDED, description="Ids of memories that this one replaces."
    )


class SaveInto(Save):
    session_id: SessionId | None = Field(None, description="The session it belongs to.")


class Search(Arguments):
    query: str = Field(
        min_length=1,
        description="A question or keywords; the part of a topic key up to its slash also matches.",
    )  # fmt: skip
    limit: int = Field(10, ge=1, le=MOST_HITS)


class Context(Arguments):
    limit: int | None = Field(None, ge=1, le=MOST_HITS, description="Maximum number of memories.")
    query: str | None = Field(None, description="The task at hand; without it, the newest.")

    ages: bool = Field(False, description="Show how old each memory is.")


class OfMemory(Arguments):
    id: Id


class Update(OfMemory):
    type: Type | None = None
    title: Title | None = None
    content: Content | None = None
    tags: Tags | None = None


class Timeline(OfMemory):
    before: int = Field(3, ge=1, le=MOST_NEIGHBOURS)
    after: int = Field(3, ge=1, le=MOST_NEIGHBOURS)


class SessionStart(Arguments):
    session_id: SessionId


class SaidMessage(BaseModel):
    """A message of the conversation."""

    model_config = ConfigDict(extra="ignore")
    role: str = Field(max_length=100, description="user or assistant.")
    content: str


class SessionEnd(Arguments):
    session_id: SessionId | None = Field(None, description="Default: the current session.")


class SessionEndWithMessages(SessionEnd):
    messages: list[SaidMessage] = Field(
        [], max_length=MOST_MESSAGES,
        description="The conversation; the user's first and last messages become the summary.",
    )  # fmt: skip


class Review(Arguments):
    limit: int = Field(10, ge=1, le=MOST_HITS)


class SuggestTopicKey(Arguments):
    title: Title
    type: Type = "discovery"
