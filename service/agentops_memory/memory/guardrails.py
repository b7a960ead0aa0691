"""What bounds the memory of an intent and of a task (RFC-0015 §6), read and checked."""

from typing import NamedTuple

from pydantic import ConfigDict, NonNegativeInt, TypeAdapter

from ..recall.text import object_of
from ..record import Record
from .sight import DETAILS_OF_COORDINATOR, details_of


class Guardrails(Record):
    """What bounds the memory that is bound to a coordinator's intent (§6.6)."""

    max_working_memory_per_task: NonNegativeInt | None = None
    max_episodic_memory_per_agent: NonNegativeInt | None = None
    allowed_semantic_namespaces: list[str] | None = None  # None is all
    denied_semantic_namespaces: list[str] | None = None
    memory_archive_required: bool = False

    def allows(self, namespace: str) -> bool:
        """Whether entries of a semantic namespace may be changed."""
        allowed = self.allowed_semantic_namespaces
        is_allowed = allowed is None or namespace in allowed
        return is_allowed and namespace not in (self.denied_semantic_namespaces or ())


def guardrails_of(details: str) -> Guardrails:
    """What a coordinator's details say of memory; a ValueError if they are damaged."""
    guardrails = details_of(details, DETAILS_OF_COORDINATOR)["guardrails"]
    return Guardrails.model_validate({} if guardrails is None else guardrails)


class Policy(NamedTuple):
    """The memory policy of a task, as its row says it."""

    archives: bool
    inherits: bool
    max_entries: NonNegativeInt | None
    max_size: NonNegativeInt | None  # KB


_POLICY = TypeAdapter(Policy, config=ConfigDict(strict=True, defer_build=True))


def policy_of(text: str) -> Policy:
    """The policy in a row; a ValueError if it is damaged, for without a limit more is allowed."""
    return _POLICY.validate_python(object_of(text))
