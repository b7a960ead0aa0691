"""Pure conversions of nouns of the domain to nouns of the contract, and the names of both."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from agentops_memory_client.contract import models as c

from ..light import asdict, dataclass
from ..memory import memory as records
from ..memory.memory import Memory, Revision, Session, Shown, Text
from ..memory.rows import whole_seconds
from ..recall.text import cut

T = TypeVar("T")

OMITTED = "X-Results-Omitted"
WARNING = "X-Memory-Warning"
IN_HEADERS = {"redacted", "warning"}
WITH_EMPTY_LISTS = {c.Stats, c.ImportPlan}  # nouns whose empty lists are sent


def session(of: Session, *, redacted: int = 0, warning: str | None = None) -> c.Session:
    return c.Session(
        id=of.id, project=of.project, started_at=whole_seconds(of.started_at),
        message_count=of.message_count, summary=of.summary or None,
        ended_at=None if of.ended_at is None else whole_seconds(of.ended_at),
        redacted=redacted, warning=warning,
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
    """A session in a context."""

    summary: str
