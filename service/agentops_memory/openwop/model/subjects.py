"""Whom entries are about: `subject:` tags, and how an event is rid of a subject. Pure."""

from collections.abc import Iterable

from ..refs import JsonObject

SUBJECT = "subject:"  # and whom an entry is about


def subjects(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags that tell whom an entry is about."""
    return tuple(tag for tag in tags if tag.startswith(SUBJECT))


def without(payload: JsonObject, subject: str, alias: str | None) -> JsonObject:
    """What an event tells without a subject; a ref of that name is called by its alias."""
    known = dict(payload)
    if alias is not None and known.get("memoryRef") == subject:
        known["memoryRef"] = alias
    tags = known.get("tags")
    if isinstance(tags, list):
        known["tags"] = [tag for tag in tags if tag != SUBJECT + subject]
    return known
