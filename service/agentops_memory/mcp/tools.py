"""The tools of agents, over any service; their answers have the ids that other tools take.

In lists, stored contents are indented, and titles have one line, so that no stored text can look
like another memory or a message of the service.
"""

import logging
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from inspect import signature
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from agentops_memory_client.contract import models as m
from agentops_memory_client.contract.service import MemoryService

from ..light import dataclass, replace
from ..memory import redactor
from ..memory.memory import MAX_SUPERSEDED, MAX_TTL, TOPIC_KEY
from ..recall.query import MAX_PROMPT
from ..settings import Profile

GLOBAL = "global"  # the scope of memories that all projects see
MOST_NAMED = 1000  # connections of one key whose named sessions are remembered


class SessionNames(OrderedDict[str, str]):
    """The session that each connection saves into: its own, unless it named another."""

    def of(self, own: str) -> str:
        """Return the session of the connection with this own session."""
        if own in self:
            self.move_to_end(own)
        return self.get(own, own)

    def name(self, own: str, session: str) -> None:
        self[own] = session
        self.move_to_end(own)
        if len(self) > MOST_NAMED:
            self.popitem(last=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The context of one connection's tools, which act on one project whatever ids they get."""

    service: MemoryService
    project: str  # normalized
    profile: Profile
    own_session: str
    names: SessionNames
    clock: Callable[[], datetime]
    is_lasting: bool = True  # whether its later requests can be recognized

    @property
    def session(self) -> str:
        return self.names.of(self.own_session)

    async def readable(self, id_: int) -> m.Observation:
        """Return a memory that this project sees; raises NotFound for all others."""
        unknown = m.NotFound(f"There is no memory {id_} in this project.")
        try:
            memory = await self.service.get(id_)
        except m.NotFound as error:
            raise unknown from error
        if memory.project != self.project and memory.scope != GLOBAL:
            raise unknown
        return memory

    async def writable(self, id_: int) -> m.Observation:
        memory = await self.readable(id_)
        if memory.project != self.project:
            raise m.Conflict(f"Memory {id_} belongs to another project, so it is read-only here.")
        return memory

    async def open_session(self, id_: str) -> m.Session:
        session = await self.service.start_session(id_, self.project)
        if session.project != self.project:
            raise m.Conflict(f"Session {session.id} belongs to another project; choose another id.")
        return session


TYPES = "decision, discovery, bugfix, pattern, architecture, config, learning or preference"
MOST_HITS = 50
MOST_NEIGHBORS = 20
MOST_MESSAGES = 1000

Id = Annotated[int, Field(ge=1, le=(1 << 63) - 1, description="The id of a memory.")]
Type = Annotated[str, Field(min_length=1, max_length=redactor.MAX_TYPE, description=f"{TYPES}.")]
Title = Annotated[
    str, Field(min_length=1, max_length=redactor.MAX_TITLE, description="One line that sums it up.")
]
Content = Annotated[str, Field(
    min_length=1, max_length=redactor.MAX_CONTENT,
    description="What is worth knowing later: what, why, where, and its consequences.",
)]  # fmt: skip
Tag = Annotated[str, Field(max_length=redactor.MAX_TAG)]
Tags = Annotated[
    list[Tag], Field(max_length=redactor.MAX_TAGS, description="Keywords to find it by.")
]
SessionId = Annotated[str, Field(min_length=1, max_length=redactor.MAX_SESSION_ID)]
Hits = Annotated[int, Field(ge=1, le=MOST_HITS)]
Neighbors = Annotated[int, Field(ge=1, le=MOST_NEIGHBORS)]


class Arguments(BaseModel):
    """The arguments of a tool; unknown ones are refused, so that none is silently ignored."""

    model_config = ConfigDict(extra="forbid")


class SaidMessage(BaseModel):
    """A message of the conversation."""

    model_config = ConfigDict(extra="ignore")
    role: str = Field(max_length=100, description="user or assistant.")
    content: str


TopicKey = Annotated[str | None, Field(
    max_length=redactor.MAX_KEY,
    description="The name of something that changes over time, such as architecture/auth: a "
    "later save with the same key replaces this memory and keeps its history.",
)]  # fmt: skip
Scope = Annotated[str | None, Field(
    max_length=redactor.MAX_SCOPE,
    description="project (the default), or global to share it with every project.",
)]  # fmt: skip
Lifetime = Annotated[int | None, Field(
    ge=1, le=MAX_TTL, description="Seconds until it is no longer true and is forgotten, if known."
)]  # fmt: skip
Pinned = Annotated[
    bool, Field(description="A rule to follow always: first in every context. Rare.")
]
Superseded = Annotated[list[Id], Field(
    max_length=MAX_SUPERSEDED, description="Ids of memories that this one replaces."
)]  # fmt: skip
SaveSession = Annotated[SessionId | None, Field(description="The session it belongs to.")]
QueryText = Annotated[str, Field(
    min_length=1,
    description="A question or keywords; the part of a topic key up to its slash also matches.",
)]  # fmt: skip
Conversation = Annotated[list[SaidMessage], Field(
    max_length=MOST_MESSAGES,
    description="The conversation; the user's first and last messages become the summary.",
)]  # fmt: skip
Ended = Annotated[SessionId | None, Field(description="Default: the current session.")]

OUTCOMES = {
    "created": "New: memory {0.id}, in session {1}.",
    "updated": f"Updated: memory {{0.id}} has this {TOPIC_KEY} and is now at revision "
    "{0.revision_count}; the text before is in its history.",
    "deduplicated": "Duplicate: memory {0.id} says the same; it has been saved "
    "{0.duplicate_count} times, and nothing was added.",
}

MAX_EXCERPT = 1000  # characters of a memory's content in a list

NEAR_KEYS = 5  # limit of the similar keys in a suggestion
SIMILAR = 3  # limit of the similar memories that a save reports
MOST_WORDS = 6  # most words of a title in a topic key
STOPWORDS = frozenset(
    "a an and are as at be by for from has have in into is it its of on or our that the their "
    "this to use used uses using was we were will with".split()
)

MOST_FAULTS = 10  # most faults that are reported

FAILED = "The memory service failed; its log has the reason. The call may have had an effect."
OUTAGE_HINT = "Continue without memory for now, and say so; save what you wanted to save later."
HINTS = {
    401: "This connection needs an API key; ask the user to configure one.",
    403: "This connection's API key does not allow this; ask the user to configure another.",
    429: "Wait a few seconds, and call again.",
    500: OUTAGE_HINT,
    503: OUTAGE_HINT,
    507: "Nothing more can be saved until memories are erased or the quota is raised.",
}

log = logging.getLogger(__name__)


class _WithoutTitles(GenerateJsonSchema):
    """The schema without the titles of fields, which repeat their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool. `run` returns text, or raises MemoryServiceError."""

    name: str
    title: str
    about: str
    takes: type[Arguments]
    run: Callable[..., Awaitable[str]]
    reads: bool  # whether it changes nothing
    destroys: bool  # whether it may delete or overwrite
    repeats: bool  # whether a repetition changes nothing more

    async def call(self, agent: Connection, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Return the text, and whether it is an error, which the agent sees and may correct.

        An argument that is null counts as absent.
        """
        try:
            non_null = {name: it for name, it in arguments.items() if it is not None}
            args = dict(self.takes.model_validate(non_null))
        except ValidationError as error:
            return self._faults(error), True
        try:
            return await self.run(agent, **args), False
        except m.MemoryServiceError as error:
            return sentence(error), True
        except Exception:  # the outermost boundary: no internals reach the agent
            log.exception("a tool failed", extra={"tool": self.name})
            return FAILED, True

    def description(self) -> dict[str, Any]:
        schema = self.takes.model_json_schema(schema_generator=_WithoutTitles)
        for model in (schema, *schema.get("$defs", {}).values()):
            del model["title"]
        return {
            "annotations": {
                "destructiveHint": self.destroys, "idempotentHint": self.reads or self.repeats,
                "openWorldHint": False, "readOnlyHint": self.reads, "title": self.title,
            },
            "description": self.about,
            "inputSchema": schema,
            "name": self.name,
            "title": self.title,
        }  # fmt: skip

    def _faults(self, error: ValidationError) -> str:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        faults = [
            f"{'.'.join(map(str, fault['loc']))[:100] or 'the arguments'}: {fault['msg']}"
            for fault in errors[:MOST_FAULTS]
        ]
        return f"{self.name} was not called: {'; '.join(faults)}."


def tool(
    title: str, *, reads: bool = False, destroys: bool = False, repeats: bool = False
) -> Callable[[Callable[..., Awaitable[str]]], Tool]:
    """Declare a function as a tool; its parameters are the arguments, its docstring the help."""

    def declared(run: Callable[..., Awaitable[str]]) -> Tool:
        return Tool(
            name=f"mem_{run.__name__}", title=title, about=" ".join((run.__doc__ or "").split()),
            takes=_arguments(run), run=run, reads=reads, destroys=destroys, repeats=repeats,
        )  # fmt: skip

    return declared


def _arguments(run: Callable[..., Awaitable[str]], without: str = "") -> type[Arguments]:
    _, *params = signature(run).parameters.values()
    fields: dict[str, Any] = {
        it.name: (it.annotation, ... if it.default is it.empty else it.default)
        for it in params if it.name != without
    }  # fmt: skip
    about = None if fields else "No arguments."
    return create_model("Arguments", __base__=Arguments, __doc__=about, **fields)


@tool("Save a memory")
async def save(  # noqa: PLR0913 - the fields of a memory, each by its name
    agent: Connection, *, title: Title, content: Content, type: Type = "discovery",
    tags: Tags = [],  # noqa: B006 - never changed
    topic_key: TopicKey = None, scope: Scope = None, ttl: Lifetime = None, pinned: Pinned = False,
    supersedes: Superseded = [],  # noqa: B006 - as above
    session_id: SaveSession = None,
) -> str:  # fmt: skip
    """Save what is worth knowing in later sessions: a decision and its reason, the cause and fix
    of a bug, a discovery, a setting, a preference. Call it right after such an event, without
    being asked. Returns the memory's id, and whether it was new, an update (same topic_key) or a
    duplicate.
    """
    session = (await agent.open_session(session_id)).id if session_id else agent.session
    outcome = await agent.service.save(
        session_id=session, project=agent.project, type=type, title=title, content=content,
        tags=tags, topic_key=topic_key, scope=scope, supersedes=supersedes, similar=SIMILAR,
        ttl=None if ttl is None else timedelta(seconds=ttl), pinned=pinned or None,
    )  # fmt: skip
    if outcome.redacted:  # report the redacted title
        title = (await agent.service.get(outcome.id)).title
    report = OUTCOMES[outcome.action].format(outcome, _line(session))
    if outcome.expires_at:
        report += f" It expires {_time(outcome.expires_at)}."
    report += _redacted(outcome.redacted)
    if outcome.warning:
        report += f"\nWarning: {outcome.warning}."
    for it in outcome.similar or ():
        age = m.age_words((agent.clock() - it.updated_at).total_seconds())
        old = age if age == m.JUST_NOW else f"{age} old"
        report += f'\nSimilar: #{it.id} "{_line(it.title)}" ({it.score:.2f}, {old}). '
        report += f"If this replaces it, save again with supersedes=[{it.id}]."
    return f"Saved {_head(type, title)}\n{report}"


@tool("Search memories", reads=True)
async def search(agent: Connection, query: QueryText, limit: Hits = 10) -> str:
    """Find memories by keywords or by a question in plain language. Any of the words may match;
    more and rarer matches rank higher. Returns ranked memories with their ids. Call it when
    something may have come up before.
    """
    query = query[:MAX_PROMPT]
    hits = await agent.service.search(query, project=agent.project, limit=limit)
    if not hits.hits:
        return f"No memory matches {query!r}. Try fewer or other words; mem_context has the newest."
    parts = [f"{m.counted(len(hits), 'memory', 'memories')}, best first:"]
    for rank, hit in enumerate(hits, 1):
        key = f" ({it})" if (it := _key(hit, " ")) else ""
        title = _head(hit.type, hit.title)
        parts.append(f"{rank}. #{hit.id} {title}{key}\n{_excerpt(hit.content)}")
    if hits.omitted:
        parts.append(f"{hits.omitted} more did not fit into one response.")
    return "\n\n".join(parts)


@tool("Recall context", reads=True)
async def context(
    agent: Connection,
    limit: Annotated[Hits | None, Field(description="Maximum number of memories.")] = None,
    query: Annotated[
        str | None, Field(description="The task at hand; without it, the newest.")
    ] = None,
    ages: Annotated[bool, Field(description="Show how old each memory is.")] = False,
) -> str:
    """Recall what to keep in mind for this project: summaries of the latest sessions, and the
    memories that match the query best (without one, the newest). Call it at the start of a task,
    and when you have lost track.
    """
    if not agent.profile.context_limit:
        return "Contexts are turned off here: their limit is set to 0."
    query = (query or "")[:MAX_PROMPT] or None
    answer = await agent.service.context(
        project=agent.project, query=query, limit=limit or agent.profile.context_limit,
        explain=True, ages=ages,
    )  # fmt: skip
    parts = []
    if answer.summaries:
        summaries = (f"- {_line(each)}" for each in answer.summaries)
        parts.append("\n".join(["Recent sessions:", *summaries]))
    if answer.observations:
        parts.append(f"Memories, {'best match' if query else 'newest'} first:")
    for line in answer.observations:
        id_ = (line.explain or {}).get("id")  # a memory of a memory store has none here
        age = "" if line.age is None else m.age_suffix(line.age)
        head = f"{f'#{id_} ' if id_ else ''}{_head(line.type, line.title)}{age}"
        parts.append(f"{head}\n{_excerpt(line.content)}")
    return "\n\n".join(parts) or "This project has no memories yet."


@tool("Read a memory", reads=True)
async def get(agent: Connection, id: Id) -> str:
    """Read one memory in full, by its id."""
    return _memory_text(await agent.readable(id))


@tool("Correct a memory", destroys=True, repeats=True)
async def update(
    agent: Connection, id: Id, type: Type | None = None, title: Title | None = None,
    content: Content | None = None, tags: Tags | None = None,
) -> str:  # fmt: skip
    """Correct a memory: the fields you pass are replaced; the rest stays. The text before is kept
    in its history. If the facts have changed, use mem_save with its topic_key instead.
    """
    before = await agent.writable(id)
    now = await agent.service.update(id, type=type, title=title, content=content, tags=tags)
    is_same = now.revision_count == before.revision_count
    return _memory_text(now, "Nothing changed." if is_same else "Updated.")


@tool("Delete a memory", destroys=True, repeats=True)
async def delete(agent: Connection, id: Id) -> str:
    """Delete a memory that is wrong or no longer useful. A person can restore it; you cannot."""
    await agent.writable(id)
    await agent.service.delete(id)
    return f"Memory {id} is deleted: no tool finds it any more. A person can restore it."


@tool("Show the history", reads=True)
async def history(agent: Connection, id: Id) -> str:
    """Show how a memory changed: its revisions, newest first."""
    await agent.readable(id)
    revisions = await agent.service.history(id)
    parts = [f"{m.counted(len(revisions), 'revision')} of memory {id}, newest first:"]
    for it in revisions:
        text = f" {_head(it.type or '', it.title or '')}\n{_excerpt(it.content or '')}"
        title = "" if it.title is None else text
        parts.append(f"{it.revision}. {it.action} {_time(it.created_at)}{title}")
    return "\n\n".join(parts)


@tool("Show the neighbors", reads=True)
async def timeline(agent: Connection, id: Id, before: Neighbors = 3, after: Neighbors = 3) -> str:
    """Show what was saved before and after a memory, to see its background."""
    await agent.writable(id)
    parts = [f"Around memory {id}, oldest first:"]
    for it in await agent.service.timeline(id, before=before, after=after):
        head = f"{'>' if it.id == id else ' '} #{it.id} {_time(it.created_at)}"
        parts.append(f"{head} {_head(it.type, it.title)}\n{_excerpt(it.content)}")
    return "\n\n".join(parts)


@tool("Count memories", reads=True)
async def stats(agent: Connection) -> str:
    """Count the memories and sessions of this project."""
    sums = await agent.service.stats(agent.project)
    memories = m.counted(sums.total_observations, "memory", "memories")
    return f"Project {agent.project} has {memories} in {m.counted(sums.total_sessions, 'session')}."


@tool("Confirm a memory", repeats=True)
async def confirm(agent: Connection, id: Id) -> str:
    """Confirm that a memory is still true, after you have verified it."""
    await agent.writable(id)
    return _memory_text(await agent.service.confirm(id), "Confirmed.")


@tool("List memories to review", reads=True)
async def review(agent: Connection, limit: Hits = 10) -> str:
    """List memories that need attention: due for a review, about to expire, or nearly the same as
    another. Confirm, correct, replace or delete each.
    """
    due = await agent.service.review(agent.project, limit=limit)
    if not due.items:
        return "No memory needs a review."
    parts = []
    for item in due.items:
        it, other, why = item.observation, item.other, "it is due for a review"
        if item.reason == "expires_soon":
            why = f"it expires {_time(it.expires_at)}" if it.expires_at else "it expires soon"
        elif other:
            why = f"it is nearly the same as #{other.id} {_head(other.type, other.title)}"
        age = m.age_suffix((agent.clock() - max(it.updated_at, it.last_seen_at)).total_seconds())
        parts.append(f"#{it.id} {_head(it.type, it.title)}{age}: {why}\n{_excerpt(it.content)}")
    return "\n\n".join([*parts, *(["More memories need a review."] if due.next else [])])


@tool("Start a session", repeats=True)
async def session_start(agent: Connection, session_id: SessionId) -> str:
    """Open a session with an id of your choice, or continue one; later saves belong to it. By
    default, each connection has its own session.
    """
    session = (await agent.open_session(session_id)).id
    if not agent.is_lasting:
        return f"Session {session} is open. Pass its id with each call that takes a session_id."
    agent.names.name(agent.own_session, session)
    return f"Session {session} is open. Later saves of this connection belong to it."


@tool("End the session", repeats=True)
async def session_end(
    agent: Connection, session_id: Ended = None, messages: Conversation = []  # noqa: B006 - as above
) -> str:  # fmt: skip
    """End the session when the work is done."""
    if session_id is None and not agent.is_lasting:
        raise m.Invalid("session_id is required: mem_session_start opens a session.")
    session = (await agent.open_session(session_id or agent.session)).id
    conversation = [m.Message(role=each.role, content=each.content) for each in messages]
    ended = await agent.service.end_session(session, conversation, project=agent.project)
    if session == agent.session:
        agent.names.pop(agent.own_session, None)
    summary = f" Its summary: {ended.summary}" if ended.summary else ""
    return f"Session {ended.session_id} has ended.{summary}"


@tool("Suggest a topic key", reads=True)
async def suggest_topic_key(agent: Connection, title: Title, type: Type = "discovery") -> str:
    """Suggest a topic_key for a title, before you save something that will change, and list
    similar keys that are in use.
    """
    words = _words(title)
    keywords = [word for word in words if word not in STOPWORDS] or words
    key = f"{'-'.join(_words(type)) or 'note'}/{'-'.join(keywords[:MOST_WORDS]) or 'untitled'}"
    key = key[: redactor.MAX_KEY]
    family = f"{key.partition('/')[0]}/"
    near = await agent.service.search(family, project=agent.project, limit=MOST_HITS)
    also = await agent.service.search(title[:MAX_PROMPT], project=agent.project)
    keys = dict.fromkeys(_line(hit.topic_key) for hit in [*also, *near] if hit.topic_key)
    if not keys:
        return f"{key}\nNo memory uses it or a similar key yet."
    used = "\n".join(f"- {it}" for it in sorted(keys, key=key.__ne__)[:NEAR_KEYS])
    return (
        f"{key}\nThese keys are in use; take one of them if it means the same, and a save with it "
        f"replaces that memory and keeps its history:\n{used}"
    )


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.findall(r"\w+", folded.replace("_", " "))


TOOLS = (
    save, search, context, get, update, delete, history, timeline, stats, confirm, review,
    session_start, session_end, suggest_topic_key,
)  # fmt: skip


def offered(profile: Profile) -> Mapping[str, Tool]:
    tools = {tool.name: tool for tool in TOOLS if profile.offers(tool.name)}
    if save.name in tools and session_start.name not in tools:
        tools[save.name] = replace(save, takes=_arguments(save.run, without="session_id"))
    if session_end.name in tools and not profile.auto_summarize:
        takes = _arguments(session_end.run, without="messages")
        tools[session_end.name] = replace(session_end, takes=takes)
    return tools


def sentence(error: m.MemoryServiceError) -> str:
    """Return an error as a sentence for an agent, with a hint what to do about it."""
    if isinstance(error, m.Unreachable):
        return f"{error} {OUTAGE_HINT}"
    if isinstance(error, m.Refused) and error.status in HINTS:
        return f"{error} {HINTS[error.status]}"
    return str(error)


def _memory_text(memory: m.Observation, note: str = "") -> str:
    about = [f"#{memory.id} {_head(memory.type, memory.title)}"]
    if key := _key(memory, ": "):
        about.append(key)
    if memory.tags:
        about.append(f"tags: {_line(', '.join(memory.tags))}")
    where = _line(f"{memory.project}, scope {memory.scope}, session {memory.session_id}")
    about.append(
        f"{where}, revision {memory.revision_count}, "
        f"saved {_time(memory.created_at)}, changed {_time(memory.updated_at)}"
    )
    life = {
        "expired" if memory.expired else "expires": memory.expires_at and _time(memory.expires_at),
        "pinned": memory.pinned and "yes",
        "supersedes": ", ".join(f"#{it}" for it in memory.supersedes),
        "superseded by": ", ".join(f"#{it}" for it in memory.superseded_by),
        "review": memory.review_at and _time(memory.review_at),
        "confirmed": memory.confirmed_at and _time(memory.confirmed_at),
    }
    if any(life.values()):
        about.append("; ".join(f"{name}: {text}" for name, text in life.items() if text))
    whole = "\n".join(about) + f"\n\n{memory.content}"
    return f"{note}{_redacted(memory.redacted)}\n{whole}" if note else whole


def _head(type_: str, title: str) -> str:
    return _line(f"[{type_}] {title}")


def _key(memory: m.Hit | m.Observation, between: str) -> str:
    return f"topic_key{between}{_line(memory.topic_key)}" if memory.topic_key else ""


def _line(text: str) -> str:
    return " ".join(text.split())


def _excerpt(content: str) -> str:
    lines = "\n".join(f"    {line}" for line in content[:MAX_EXCERPT].splitlines())
    if len(content) <= MAX_EXCERPT:
        return lines
    return f"{lines}...\n(the first {MAX_EXCERPT:,} of {len(content):,} characters)"


def _redacted(secrets: int) -> str:
    were = "was" if secrets == 1 else "were"
    return f" {m.counted(secrets, 'secret')} in it {were} not stored." if secrets else ""


def _time(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"
