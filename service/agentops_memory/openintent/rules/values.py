"""Values of entries: JSON objects, stored as compact text, from which secrets are kept out."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import Invalid
from ...memory.json_redaction import JsonRedactor, is_plain, written
from ...memory.model.agent_memory import KEPT, AgentChange, AgentDraft, AgentFilter, Labels, Place
from ...memory.model.agents import LONGEST_AGENT, AgentId
from ...memory.redactor import MAX_KEY, MAX_TAG, Redactor

MAX_VALUE = 65_536  # bytes of compact JSON in UTF-8 (RFC-0015 §1.3)

JsonObject = Mapping[str, Any]


def compact(value: JsonObject) -> str:
    """The object as it is stored; Invalid for what JSON or UTF-8 cannot say, and beyond 64 KB."""
    try:
        text = written(value)
        size = len(text.encode())
    except ValueError as error:  # no number of JSON; or a lone surrogate
        raise Invalid("value must be JSON that can be written in UTF-8.") from error
    if size > MAX_VALUE:
        raise Invalid(
            f"value must be at most {MAX_VALUE:,} bytes of compact JSON; "
            "store what is larger elsewhere, and a reference to it here."
        )
    return text


def screened(redactor: Redactor, value: str) -> str:
    """The stored object without secrets, each string read together with its member's name."""
    held = json.loads(value)
    if is_plain(value, held, lambda said: not redactor.rules.redacted(said).count):
        return value
    return compact(JsonRedactor(redactor, redactor.whole).document(held))


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
