"""Pure conversions of nouns of the domain to nouns of the contract, and of these to JSON."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agentops_memory_client.contract import models as c

from ..http import query
from ..light import Lazy, asdict, dataclass, is_dataclass
from ..memory import memory as records
from ..memory.memory import Memory, Revision, Session, Shown, Text
from ..memory.rows import whole_seconds
from ..memory.saves import Lookalike, Saved
from ..memory.search import Method
from ..recall.text import cut

# A search in a file needs none of these; importing them takes longer than the search.
if TYPE_CHECKING:
    import pydantic_core

    from ..http import gate as large_answers
else:
    pydantic_core = Lazy(None, "pydantic_core")
    large_answers = Lazy(__package__, "..http.gate")

T = TypeVar("T")

JSON = "application/json"
OMITTED = "X-Results-Omitted"
WARNING = "X-Memory-Warning"
IN_HEADERS = {"redacted", "warning"}
WITH_EMPTY_LISTS = {c.Stats, c.ImportPlan}  # nouns whose empty lists are sent

# Most bytes of a part besides its content, and of one character of the content: `\u0000`.
MOST_OVERHEAD, MOST_OF_A_CHARACTER = 64 * 1024, 6


def session(of: Session, *, redacted: int = 0, warning: str | None = None) -> c.Session:
    return c.Session(
        id=of.id, project=of.project, started_at=whole_seconds(of.started_at),
        message_count=of.message_count, summary=of.summary or None,
        ended_at=None if of.ended_at is None else whole_seconds(of.ended_at),
        redacted=redacted, warning=warning,
    )  # fmt: skip


def saved(outcome: Saved, similar: Sequence[Lookalike] | None, redacted: int) -> c.Saved:
    return c.Saved(
        id=outcome.memory.id, action=outcome.action.value, revision_count=outcome.memory.revision,
        duplicate_count=outcome.memory.duplicates, expires_at=outcome.memory.lifecycle.expires_at,
        similar=None if similar is None else tuple(map(_similar, similar)), redacted=redacted,
        warning=outcome.warning,
    )  # fmt: skip


def _similar(of: Lookalike) -> c.Similar:
    return c.Similar(
        id=of.memory.id, title=of.memory.text.title, type=of.memory.text.type,
        score=round(of.score, 2), updated_at=whole_seconds(of.memory.updated_at),
    )  # fmt: skip


def hit(of: Shown, rank: float, **more: Any) -> c.Hit:
    return c.Hit(**_words(of.id, of.key, of.text), rank=rank, **more)


def _words(id_: int, key: str | None, text: Text) -> dict[str, Any]:
    words = {"type": text.type, "title": text.title, "content": text.content}
    return {"id": id_, records.TOPIC_KEY: key, **words}


def line(text: Text, most: int, **more: Any) -> c.Line:
    """Return a memory of a context, its content cut to at most `most` characters."""
    return c.Line(type=text.type, title=text.title, content=cut(text.content, most), **more)


def observation(memory: Memory, *, redacted: int = 0) -> c.Observation:
    return memory_as(c.Observation, memory, redacted=redacted, supersedes=memory.links.supersedes)


def memory_as(noun: Callable[..., T], memory: Memory, **more: Any) -> T:
    """Return a memory as a noun of the contract; `more` has the noun's other fields."""
    text, lifecycle = memory.text, memory.lifecycle
    return noun(
        **_words(memory.id, memory.key, text), session_id=memory.session, tags=text.tags,
        project=memory.space.project, scope=memory.space.scope, normalized_hash=memory.content_hash,
        revision_count=memory.revision, duplicate_count=memory.duplicates,
        last_seen_at=whole_seconds(memory.last_seen_at), promoted_to=memory.promoted_to,
        created_at=whole_seconds(memory.created_at), updated_at=whole_seconds(memory.updated_at),
        expires_at=lifecycle.expires_at, expired=memory.is_expired,
        pinned=lifecycle.pinned_at is not None, superseded_by=memory.links.superseded_by,
        review_at=lifecycle.review_at, confirmed_at=lifecycle.confirmed_at, **more,
    )  # fmt: skip


def revision(of: Revision) -> c.Revision:
    text = asdict(of.text) if of.text else {}
    at = whole_seconds(of.at)
    return c.Revision(revision=of.number, action=of.kind.value, created_at=at, **text)


def timeline_entry(memory: Memory) -> c.TimelineEntry:
    return c.TimelineEntry(
        id=memory.id, type=memory.text.type, title=memory.text.title, content=memory.text.content,
        created_at=whole_seconds(memory.created_at),
    )  # fmt: skip


class Rows(tuple[T, ...]):  # noqa: SLOT001 - a tuple with slots can have no attributes
    """The part of a list that fits into one response, and its JSON if that was measured."""

    omitted = 0
    json: Sequence[bytes] = ()

    def after(self, count: int) -> "Rows[T]":
        some = Rows(self[count:])
        some.json = self.json[count:]
        return some


@dataclass(frozen=True, slots=True)
class SummaryLine:
    summary: str


async def fitting(parts: Sequence[T], *, overhead: int = 0, centre: int = 0) -> Rows[T]:
    """Return the parts that fit next to `overhead` bytes, those nearest to `centre` first."""
    texts = (getattr(part, name, None) for part in parts for name in ("content", "summary"))
    most = len(parts) * MOST_OVERHEAD + MOST_OF_A_CHARACTER * sum(map(len, filter(None, texts)))
    if not overhead and most < query.MAX_ANSWER:  # they fit in any case
        return Rows(parts)
    room, json = query.MAX_ANSWER - 1024 - overhead, {}
    nearest = sorted(range(len(parts)), key=lambda at: abs(at - centre))
    async for at, part in large_answers.paced(
        ((at, json_bytes(parts[at])) for at in nearest), lambda numbered: len(numbered[1])
    ):
        room -= len(part) + 1
        if room < 0:
            break
        json[at] = part
    kept = sorted(json)
    some = Rows(parts[at] for at in kept)
    some.omitted, some.json = len(parts) - len(kept), [json[at] for at in kept]
    return some


def json_bytes(noun: object) -> bytes:
    """Return a noun, or a list of one type, as JSON; fields without a value are omitted."""
    kind: Any = type(noun)
    if hasattr(kind, "model_dump_json"):
        return cast(bytes, kind.model_dump_json(noun, exclude_none=True).encode())
    match noun:
        case c.Found():
            hits, why = json_bytes(noun.hits), noun.explanation
            return hits if why is None else b'{"results":%b,"explain":%b}' % (hits, json_bytes(why))
        case c.Context():
            summaries = json_bytes(list(map(SummaryLine, noun.summaries)))
            lines, why = json_bytes(noun.observations), noun.explanation
            explain = b"" if why is None else b',"explain":%b' % json_bytes(why)
            context = b'{"recent_sessions":%b,"recent_observations":%b%b}'
            return context % (summaries, lines, explain)
        case Rows() if noun.json:
            return b"[%b]" % b",".join(noun.json)
        case [first, *_]:
            kind, noun = list[type(first)], list(noun)  # type: ignore[misc]
        case list() | tuple() | dict():
            return pydantic_core.to_json(noun)
    return c.adapter_of(kind).dump_json(
        noun, exclude=IN_HEADERS, exclude_none=True, exclude_defaults=kind not in WITH_EMPTY_LISTS
    )


def build_serializers() -> None:
    """Build the serializers of all answers: the first one imports modules, which opens files."""
    for kind in vars(c).values():
        if isinstance(kind, type) and is_dataclass(kind):
            c.adapter_of(kind)
            c.adapter_of(list[kind])  # type: ignore[valid-type]
    c.adapter_of(list[SummaryLine])


def outcome(methods: Iterable[Method]) -> str:
    """Return the metric label of a context, by the methods of its memories."""
    different = {*methods}
    return "found" if different - {Method.RECENCY} else "recency" if different else "empty"
