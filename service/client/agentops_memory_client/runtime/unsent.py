"""A write that the service has not accepted yet."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, Self, get_args

Operation = Literal["start_session", "append_messages", "save", "end_session"]
"""The name of the client's method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsent:
    """One write, with its idempotency key.

    ValueError for an unknown operation, or fields of the wrong type.
    """

    operation: Operation
    fields: Mapping[str, Any]  # what the client's method takes, as JSON has it
    key: str
    trace: Mapping[str, str] = field(
        default_factory=dict
    )  # the W3C trace context headers of its turn

    def __post_init__(self) -> None:
        if self.operation not in get_args(Operation):
            raise ValueError(f"What is unsent is one of {', '.join(get_args(Operation))}.")
        if not isinstance(self.fields, Mapping) or not isinstance(self.trace, Mapping):
            raise ValueError("The fields and the trace of what is unsent are mappings.")
        if not all(isinstance(text, str) for text in (self.key, *self.trace.values())):
            raise ValueError("The key of what is unsent is text, and so are its headers.")

    @classmethod
    def keyed(
        cls,
        operation: Operation,
        fields: Mapping[str, Any],
        trace: Mapping[str, str],
        *parts: object,
    ) -> Self:
        """A write whose key is the hash of its operation, its fields and these parts."""
        text = json.dumps([operation, fields, *parts], sort_keys=True)
        return cls(
            operation=operation, fields=fields, key=sha256(text.encode()).hexdigest(), trace=trace
        )
