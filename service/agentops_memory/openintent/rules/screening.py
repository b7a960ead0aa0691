"""Secrets leave entries before they are stored, and filters, so that these find what was stored."""

from dataclasses import replace

from ...errors import Invalid
from ...memory.model.agent_memory import KEPT, AgentChange, AgentDraft, AgentFilter, Labels, Place
from ...memory.model.agents import LONGEST_AGENT, AgentId
from ...memory.redactor import MAX_KEY, MAX_TAG, Redactor
from .values import screened

MAX_NAME = 200  # characters of a namespace, and of who curates an entry


def require_plain(redactor: Redactor, agent: AgentId) -> None:
    """Raise Invalid for an agent whose id holds a secret: it would stand in entries and events."""
    if redactor.rules.redacted(agent).count:
        raise Invalid("An agent's id holds a secret; choose another one.")


def clean_place(redactor: Redactor, place: Place) -> Place:
    namespace = redactor.text(place.space.namespace, MAX_NAME)
    space = replace(place.space, namespace=namespace)
    return replace(place, space=space, key=redactor.text(place.key, MAX_KEY))


def clean_draft(redactor: Redactor, draft: AgentDraft) -> AgentDraft:
    handling = draft.handling
    return replace(
        draft,
        place=clean_place(redactor, draft.place),
        value=screened(redactor, draft.value),
        handling=replace(
            handling,
            tags=_tags(redactor, handling.tags),
            curated_by=_name(redactor, handling.curated_by),
        ),
        labels=_labels(redactor, draft.labels),
    )


def clean_change(redactor: Redactor, change: AgentChange) -> AgentChange:
    curated_by = change.curated_by
    return replace(
        change,
        value=None if change.value is None else screened(redactor, change.value),
        tags=None if change.tags is None else _tags(redactor, change.tags),
        curated_by=KEPT if curated_by is KEPT else _name(redactor, curated_by),
    )


def clean_filter(redactor: Redactor, filter_: AgentFilter) -> AgentFilter:
    return replace(
        filter_,
        namespace=_name(redactor, filter_.namespace),
        key=None if filter_.key is None else redactor.text(filter_.key, MAX_KEY),
        every_tag=_tags(redactor, filter_.every_tag),
        any_tag=_tags(redactor, filter_.any_tag),
        labels=_labels(redactor, filter_.labels),
    )


def clean_namespace(redactor: Redactor, name: str) -> str:
    return redactor.text(name, MAX_NAME)


def _tags(redactor: Redactor, tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(redactor.text(tag, MAX_TAG) for tag in tags))


def _name(redactor: Redactor, text: str | None) -> str | None:
    return None if text is None else redactor.text(text, MAX_NAME)


def _labels(redactor: Redactor, labels: Labels) -> Labels:
    return Labels(
        task=None if labels.task is None else redactor.text(labels.task, LONGEST_AGENT),
        intent=None if labels.intent is None else redactor.text(labels.intent, LONGEST_AGENT),
    )
