"""Bodies as nouns of the domain. Pure."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from ..memory.model.memory import (
    UNSET,
    Change,
    Draft,
    LifecycleChange,
    MemoryId,
    Reference,
    SessionId,
    Text,
)
from ..memory.model.space import PROJECT_SCOPE, Space, project_name
from ..recall.text.summary import Message
from . import models as m


def draft(given: m.ObservationBody) -> Draft:
    return Draft(
        session=SessionId(given.session_id),
        space=Space(project=project_name(given.project), scope=given.scope or PROJECT_SCOPE),
        text=text(given),
        key=given.topic_key or None,
        lifecycle=lifecycle(given),
    )


def change(given: m.ChangeBody) -> Change:
    tags = None if given.tags is None else tuple(given.tags)
    return Change(
        type=given.type,
        title=given.title,
        content=given.content,
        tags=tags,
        lifecycle=lifecycle(given),
    )


def lifecycle(given: m.LifecycleBody) -> LifecycleChange:
    """What a body sets; in a change `null` takes an instant away."""
    named = given.model_fields_set
    return LifecycleChange(
        expires_at=given.expires_at if "expires_at" in named else UNSET,
        ttl=None if given.ttl is None else timedelta(seconds=given.ttl),
        pinned=given.pinned,
        supersedes=None if given.supersedes is None else tuple(map(_reference, given.supersedes)),
        review_at=given.review_at if "review_at" in named else UNSET,
    )


def _reference(given: int | str) -> Reference:
    return given if isinstance(given, str) else MemoryId(given)


def text(given: m.MemoryBody) -> Text:
    tags = tuple(given.tags or ())
    return Text(type=given.type, title=given.title, content=given.content, tags=tags)


def messages(given: Mapping[str, object]) -> Iterator[Message]:
    """The messages in a body, which must have some or an empty list of them."""
    m.body(m.Messages, given)
    every = given["messages"]
    assert isinstance(every, list)  # else it was refused
    for place, each in enumerate(every):
        yield message(each, place)


def message(given: object, place: int) -> Message:
    told = m.body(m.MessageBody, {} if given is None else given, f"messages[{place}]")
    return Message(role=told.role or "", content=told.content or "")
