"""The tools of agents, over any service: what each takes, does, and says."""

import logging
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentops_memory_client.contract.errors import (
    Conflict,
    Invalid,
    MemoryServiceError,
    NotFound,
    Refused,
    Unreachable,
)
from agentops_memory_client.contract.models import Message, Observation, Session
from agentops_memory_client.contract.service import MemoryService

from ..memory import redactor
from ..memory.memory import MAX_SUPERSEDED, MAX_TTL
from ..memory.redactor import MAX_KEY
from ..recall.query import MAX_PROMPT
from ..settings.parsing import Profile
from . import texts

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
    str, Field(min_length=1, max_length=redactor.MAX_TITLE, description="One line that sums it up.")
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


NEAR_KEYS = 5
SIMILAR = 3  # look-alikes that a save tells of
MOST_WORDS = 6  # of a title, in a topic key
LITTLE = frozenset(
    "a an and are as at be by for from has have in into is it its of on or our that the their "
    "this to use used uses using was we were will with".split()
)


MOST_ARGUMENTS = 50  # that are looked at; no tool takes as many
MOST_FAULTS = 10  # that are reported

FAILED = "The memory service failed; its log has the reason. The call may have had an effect."
DEAD = "Continue without memory for now, and say so; save what you wanted to save later."
HINTS = {
    401: "This connection needs an API key; ask the user to configure one.",
    403: "This connection's API key does not allow this; ask the user to configure another.",
    429: "Wait a few seconds, and call again.",
    500: DEAD,
    503: DEAD,
    507: "Nothing more can be saved until memories are erased or the quota is raised.",
}

log = logging.getLogger(__name__)


class Said(NamedTuple):
    """What a tool says to the agent."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool. What it answers is text; its refusals are MemoryServiceErrors."""

    name: str
    title: str
    about: str
    takes: type[Arguments]
    run: Callable[[Connection, Any], Awaitable[str]]
    reads: bool = False  # it changes nothing
    destroys: bool = False  # it may take something away
    repeats: bool = False  # done again, it changes nothing more

    async def call(self, agent: Connection, arguments: Mapping[str, Any]) -> Said:
        """What it says. What the agent can correct is said as an error, so that it sees it.

        An argument that is null counts as absent.
        """
        try:
            few = islice(arguments.items(), MOST_ARGUMENTS)
            args = self.takes.model_validate({k: v for k, v in few if v is not None})
        except ValidationError as error:
            return Said(self._faults(error), is_error=True)
        try:
            return Said(await self.run(agent, args))
        except MemoryServiceError as error:
            return Said(sentence(error), is_error=True)
        except Exception:  # the boundary: nothing of its inside reaches the agent
            log.exception("a tool failed", extra={"tool": self.name})
            return Said(FAILED, is_error=True)

    def description(self) -> dict[str, Any]:
        """As MCP lists it."""
        return {
            "annotations": {
                "destructiveHint": self.destroys,
                "idempotentHint": self.reads or self.repeats,
                "openWorldHint": False,
                "readOnlyHint": self.reads,
                "title": self.title,
            },
            "description": self.about,
            "inputSchema": _untitled(self.takes.model_json_schema()),
            "name": self.name,
            "title": self.title,
        }

    def _faults(self, error: ValidationError) -> str:
        """The faults of the arguments, in words, and what the tool takes."""
        every = error.errors(include_url=False, include_input=False, include_context=False)
        faults = [
            f"{'.'.join(map(str, fault['loc']))[:100] or 'the arguments'}: {fault['msg']}"
            for fault in every[:MOST_FAULTS]
        ]
        takes = ", ".join(
            name if field.is_required() else f"{name} (optional)"
            for name, field in self.takes.model_fields.items()
        )
        return f"{self.name} was not called: {'; '.join(faults)}. Arguments: {takes or 'none'}."


async def save(agent: Connection, args: Save) -> str:
    named = args.session_id if isinstance(args, SaveInto) else None
    session = (await _opened(agent, named)).id if named else agent.session
    outcome = await agent.service.save(
        **args.model_dump(exclude={"session_id", "ttl", "pinned"}),
        session_id=session,
        project=agent.project,
        ttl=None if args.ttl is None else timedelta(seconds=args.ttl),
        pinned=args.pinned or None,
        similar=SIMILAR,
    )
    title = args.title
    if outcome.redacted:  # reported as it is stored
        title = (await agent.service.get(outcome.id)).title
    return texts.saved(outcome, args.type, title, session, agent.clock())


async def search(agent: Connection, args: Search) -> str:
    query = args.query[:MAX_PROMPT]
    hits = await agent.service.search(query, project=agent.project, limit=args.limit)
    hint = "; mem_get returns all of it" if agent.profile.offers("mem_get") else ""
    return texts.found(hits, query, hint=hint)


async def context(agent: Connection, args: Context) -> str:
    limit = args.limit or agent.profile.context_limit
    if not agent.profile.context_limit:
        return "Contexts are turned off here: their limit is set to 0."
    query = (args.query or "")[:MAX_PROMPT] or None
    answer = await agent.service.context(
        project=agent.project, query=query, limit=limit, explain=True, ages=args.ages
    )
    return texts.context(answer, order="best match first" if query else "newest first")


async def get(agent: Connection, args: OfMemory) -> str:
    return texts.memory(await agent.seen(args.id))


async def update(agent: Connection, args: Update) -> str:
    before = await agent.owned(args.id)
    now = await agent.service.update(
        args.id, type=args.type, title=args.title, content=args.content, tags=args.tags
    )
    is_same = now.revision_count == before.revision_count
    return texts.memory(now, "Nothing changed." if is_same else "Updated.")


async def delete(agent: Connection, args: OfMemory) -> str:
    await agent.owned(args.id)
    await agent.service.delete(args.id)
    return f"Memory {args.id} is deleted: no tool finds it any more. A person can restore it."


async def history(agent: Connection, args: OfMemory) -> str:
    await agent.seen(args.id)
    return texts.history(args.id, await agent.service.history(args.id))


async def timeline(agent: Connection, args: Timeline) -> str:
    await agent.owned(args.id)
    entries = await agent.service.timeline(args.id, before=args.before, after=args.after)
    return texts.timeline(args.id, entries)


async def stats(agent: Connection, _: Nothing) -> str:
    return texts.stats(await agent.service.stats(agent.project), agent.project)


async def confirm(agent: Connection, args: OfMemory) -> str:
    await agent.owned(args.id)
    return texts.memory(await agent.service.confirm(args.id), "Confirmed.")


async def review(agent: Connection, args: Review) -> str:
    due = await agent.service.review(agent.project, limit=args.limit)
    return texts.review(due, agent.clock())


async def session_start(agent: Connection, args: SessionStart) -> str:
    opened = await _opened(agent, args.session_id)
    if not agent.is_lasting:
        return f"Session {opened.id} is open. Pass its id with each call that takes a session_id."
    agent.names.name(agent.own_session, opened.id)
    return f"Session {opened.id} is open. Later saves of this connection belong to it."


async def session_end(agent: Connection, args: SessionEnd) -> str:
    said = args.messages if isinstance(args, SessionEndWithMessages) else []
    messages = [Message(role=each.role, content=each.content) for each in said]
    if args.session_id is None and not agent.is_lasting:
        raise Invalid("session_id is required: mem_session_start opens a session.")
    session = (await _opened(agent, args.session_id or agent.session)).id
    ended = await agent.service.end_session(session, messages, project=agent.project)
    if session == agent.session:
        agent.names.forget(agent.own_session)
    summary = f" Its summary: {ended.summary}" if ended.summary else ""
    return f"Session {ended.session_id} has ended.{summary}"


async def suggest_topic_key(agent: Connection, args: SuggestTopicKey) -> str:
    key = suggested_key(args.type, args.title)
    family = f"{key.partition('/')[0]}/"
    near = await agent.service.search(family, project=agent.project, limit=MOST_HITS)
    also = await agent.service.search(args.title[:MAX_PROMPT], project=agent.project)
    keys = {hit.id: hit.topic_key for hit in [*also, *near] if hit.topic_key}
    if await _is_held(agent, {id_ for id_, used in keys.items() if used == key}):
        return f"{key}\nIt is in use: a save with it replaces that memory and keeps its history."
    others = [it for it in dict.fromkeys(keys.values()) if it != key]
    return texts.suggested(key, others[:NEAR_KEYS])


def suggested_key(type_: str, title: str) -> str:
    """`type/words-of-the-title`, in lower case, without little words; as long as a key may be."""
    words = _words(title)
    telling = [word for word in words if word not in LITTLE] or words
    key = f"{'-'.join(_words(type_)) or 'note'}/{'-'.join(telling[:MOST_WORDS]) or 'untitled'}"
    return key[:MAX_KEY]


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.findall(r"\w+", folded.replace("_", " "))


async def _is_held(agent: Connection, ids: Collection[int]) -> bool:
    """Whether a save that names no scope would replace one of these, which have its key."""
    found = [await agent.seen(id_) for id_ in ids]
    return any((each.project, each.scope) == (agent.project, "project") for each in found)


async def _opened(agent: Connection, session: str) -> Session:
    opened = await agent.service.start_session(session, agent.project)
    if opened.project != agent.project:
        raise Conflict(f"Session {opened.id} belongs to another project; choose another id.")
    return opened


def offered(profile: Profile) -> Mapping[str, Tool]:
    return {tool.name: _fitted(tool, profile) for tool in TOOLS if profile.offers(tool.name)}


def _fitted(tool: Tool, profile: Profile) -> Tool:
    if tool.name == "mem_save" and profile.offers("mem_session_start"):
        return replace(tool, takes=SaveInto)
    if tool.name == "mem_session_end" and profile.auto_summarize:
        return replace(tool, takes=SessionEndWithMessages)
    return tool


TOOLS = (
    Tool(
        name="mem_save", title="Save a memory", takes=Save, run=save,
        about="Save what is worth knowing in later sessions: a decision and its reason, the cause "
        "and fix of a bug, a discovery, a setting, a preference. Call it right after such an "
        "event, without being asked. Returns the memory's id, and whether it was new, an update "
        "(same topic_key) or a duplicate.",
    ),
    Tool(
        name="mem_search", title="Search memories", takes=Search, run=search, reads=True,
        about="Find memories by keywords or by a question in plain language. Any of the words may "
        "match; more and rarer matches rank higher. Returns ranked memories with their ids. Call "
        "it when something may have come up before.",
    ),
    Tool(
        name="mem_context", title="Recall context", takes=Context, run=context, reads=True,
        about="Recall what to keep in mind for this project: summaries of the latest sessions, and "
        "the memories that match the query best (without one, the newest). Call it at the start "
        "of a task, and when you have lost track.",
    ),
    Tool(
        name="mem_get", title="Read a memory", takes=OfMemory, run=get, reads=True,
        about="Read one memory in full, by its id.",
    ),
    Tool(
        name="mem_update", title="Correct a memory", takes=Update, run=update,
        destroys=True, repeats=True,
        about="Correct a memory: the fields you pass are replaced; the rest stays. The text before "
        "is kept in its history. If the facts have changed, use mem_save with its topic_key "
        "instead.",
    ),
    Tool(
        name="mem_delete", title="Delete a memory", takes=OfMemory, run=delete,
        destroys=True, repeats=True,
        about="Delete a memory that is wrong or no longer useful. A person can restore it; you "
        "cannot.",
    ),
    Tool(
        name="mem_history", title="Show the history", takes=OfMemory, run=history, reads=True,
        about="Show how a memory changed: its revisions, newest first.",
    ),
    Tool(
        name="mem_timeline", title="Show the neighbors", takes=Timeline, run=timeline,
        reads=True,
        about="Show what was saved before and after a memory, to see its background.",
    ),
    Tool(
        name="mem_stats", title="Count memories", takes=Nothing, run=stats, reads=True,
        about="Count the memories and sessions of this project.",
    ),
    Tool(
        name="mem_confirm", title="Confirm a memory", takes=OfMemory, run=confirm, repeats=True,
        about="Confirm that a memory is still true, after you have verified it.",
    ),
    Tool(
        name="mem_review", title="List memories to review", takes=Review, run=review, reads=True,
        about="List memories that need attention: due for a review, about to expire, or nearly the "
        "same as another. Confirm, correct, replace or delete each.",
    ),
    Tool(
        name="mem_session_start", title="Start a session", takes=SessionStart,
        run=session_start, repeats=True,
        about="Open a session with an id of your choice, or continue one; later saves belong to "
        "it. By default, each connection has its own session.",
    ),
    Tool(
        name="mem_session_end", title="End the session", takes=SessionEnd, run=session_end,
        repeats=True,
        about="End the session when the work is done.",
    ),
    Tool(
        name="mem_suggest_topic_key", title="Suggest a topic key", takes=SuggestTopicKey,
        run=suggest_topic_key, reads=True,
        about="Suggest a topic_key for a title, before you save something that will change, and "
        "list similar keys that are in use.",
    ),
)  # fmt: skip


def _untitled(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_untitled(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: {key: _untitled(value) for key, value in part.items()}
        if name in ("properties", "$defs")
        else _untitled(part)
        for name, part in schema.items()
        if name != "title"
    }


def sentence(error: MemoryServiceError) -> str:
    """An error as an agent reads it, with what to do about it."""
    if isinstance(error, Unreachable):
        return f"{error} {DEAD}"
    if isinstance(error, Refused) and error.status in HINTS:
        return f"{error} {HINTS[error.status]}"
    return str(error)
