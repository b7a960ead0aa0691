"""Artifacts of proposals: JSON objects as compact text, which is what is installed. Pure."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ....memory.json_redaction import JsonRedactor, is_plain, texts, written
from ....recall.text.json_words import stored_object
from ....recall.text.normalization import clean
from ...model.proposals import Artifact, ArtifactKind
from ..screen import Screen

MAX_ARTIFACT = 262_144  # bytes of its text in UTF-8

NEEDED: Mapping[ArtifactKind, tuple[str, ...]] = {
    ArtifactKind.AGENT_PACK: ("name", "version"),
    ArtifactKind.WORKFLOW_CHAIN_PACK: ("name", "version"),
    ArtifactKind.PROMPT_TEMPLATE: ("templateId", "version", "text"),
    ArtifactKind.AUTOMATION: ("workflowId",),
}
"""The members that an artifact needs before it is applied, each a text that is not empty."""


def compact(value: Mapping[str, Any]) -> str:
    """The object as it is stored, its members in their order.

    A ValueError for a number, a NUL or half of a character, which no stored text can hold.
    """
    text = written(value)
    text.encode()  # a lone surrogate is a ValueError
    if "\\u0000" in text and any(clean(it) != it for it in texts(value)):
        raise ValueError
    return text


def artifact_of(text: str) -> Artifact:
    """The artifact that a stored text is."""
    canonical = json.dumps(
        json.loads(text), ensure_ascii=False, separators=(",", ":"), sort_keys=True
    )
    return Artifact(
        text=text,
        checksum=sha256(text.encode()).digest(),
        digest=sha256(canonical.encode()).digest(),
    )


def screened(screen: Screen, text: str) -> str:
    """The stored object without secrets, in texts and in names; it may be longer than it was."""
    held = stored_object(text)
    if held is None:  # a damaged file has it so
        return screen.text(text)
    if is_plain(text, held, lambda said: not screen.changes(said)):
        return text
    return written(JsonRedactor(screen.redactor, screen.text).document(held))


def missing(kind: ArtifactKind, text: str) -> list[str]:
    """The members that the artifact needs, and lacks."""
    held = stored_object(text) or {}
    return [name for name in NEEDED[kind] if not (isinstance(held.get(name), str) and held[name])]
