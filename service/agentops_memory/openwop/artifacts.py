"""Artifacts of proposals: JSON objects as compact text, installed byte for byte as they are stored.

An installed artifact is a row of `proposals` that is applied (RFC 0096).
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticKnownError

from ..errors import Refusal
from ..http.bodies import fault
from ..memory.redactor import JsonRedactor, is_plain, texts, written
from ..recall.text import clean, object_of
from ..record import Record
from .api import Screen

MAX_ARTIFACT = 262_144  # bytes of its text in UTF-8
EXAMPLE = {"name": "triage", "version": "1.0.0"}
REF_DIGITS = 16  # of the SHA-256 of its text, in its ref


class ArtifactKind(StrEnum):
    """What is proposed."""

    AGENT_PACK = "agent-pack"
    WORKFLOW_CHAIN_PACK = "workflow-chain-pack"
    PROMPT_TEMPLATE = "prompt-template"
    AUTOMATION = "automation"


# The members that an artifact needs before it is applied, each a text that is not empty.
NEEDED: Mapping[ArtifactKind, tuple[str, ...]] = {
    ArtifactKind.AGENT_PACK: ("name", "version"),
    ArtifactKind.WORKFLOW_CHAIN_PACK: ("name", "version"),
    ArtifactKind.PROMPT_TEMPLATE: ("templateId", "version", "text"),
    ArtifactKind.AUTOMATION: ("workflowId",),
}


class ArtifactInvalid(Refusal):
    code = "artifact_invalid"

    def __init__(self, missing: list[str]) -> None:
        super().__init__("The artifact lacks what its kind needs to be applied.")
        self.missing = missing  # members


class ArtifactText(Record):
    """An artifact, byte for byte as it was stored: an object of any members."""

    model_config = ConfigDict(extra="allow")
    text: str = Field(exclude=True)

    def json_bytes(self) -> bytes:
        return self.text.encode()


def _compact(value: object) -> str:
    """The object as it is stored: compact JSON, its members in their order."""
    if not isinstance(value, dict):
        raise PydanticKnownError("dict_type")
    try:
        text = written(value)
        size = len(text.encode())  # a lone surrogate is a ValueError
        if "\\u0000" in text and any(clean(it) != it for it in texts(value)):
            raise ValueError
    except (ValueError, RecursionError):
        raise fault("must be JSON without NUL, lone surrogates or infinite numbers") from None
    if size > MAX_ARTIFACT:
        raise fault(f"has at most {MAX_ARTIFACT:,} bytes of UTF-8")
    return text


ArtifactObject = Annotated[
    str,
    BeforeValidator(_compact),
    WithJsonSchema({"type": "object", "additionalProperties": True, "examples": [EXAMPLE]}),
]
"""An object in a body, as the text that is stored."""


def screened(screen: Screen, text: str) -> str:
    """The stored object without secrets, in texts and in names; it may be longer than it was."""
    value = object_of(text)
    if is_plain(text, value, lambda its: not any(map(screen.changes, its))):
        return text
    return written(JsonRedactor(screen.redactor, screen.text).document(value))


def missing(kind: ArtifactKind, text: str) -> list[str]:
    """The members that the artifact needs, and lacks."""
    value = object_of(text)
    return [name for name in NEEDED[kind] if not (isinstance(value.get(name), str) and value[name])]


def installed_ref(kind: ArtifactKind, proposal: str, checksum: bytes) -> str:
    """The name of an artifact of these bytes once it is applied."""
    return f"installed:{kind.value}:{proposal}:{checksum.hex()[:REF_DIGITS]}"


def proposal_in(ref: str) -> str:
    """The id of the proposal that a ref names; of what is no ref, one that no proposal has."""
    return ref.removeprefix("installed:").partition(":")[2].partition(":")[0]


def artifact_columns(text: str) -> Mapping[str, object]:
    """An artifact in its row: equal texts have equal checksums, equal objects equal digests."""
    canonical = json.dumps(
        json.loads(text), ensure_ascii=False, separators=(",", ":"), sort_keys=True
    )
    checksum, digest = (sha256(it.encode()).digest() for it in (text, canonical))
    return {"artifact": text, "checksum": checksum, "digest": digest}
