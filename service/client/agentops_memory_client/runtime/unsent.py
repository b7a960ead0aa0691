"""A write that the service has not taken yet, as it is kept until it has."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, Self, get_args

Deed = Literal["start_session", "append_messages", "save", "end_session"]
"""What is to be done, by the name of the client's method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsent:
    """One write, with the key under which it is done once however often it is sent.

    ValueError for one that the client has no method for, or without its key.
    """

    deed: Deed
    fields: Mapping[str, Any]  # what the client's method takes, as JSON has it
    key: str
    trace: Mapping[str, str] = field(default_factory=dict)  # where it belongs, as headers tell it

    def __post_init__(self) -> None:
        if self.deed not in get_args(Deed):
            raise ValueError(f"What is unsent is one of {', '.join(get_args(Deed))}.")
        if not isinstance(self.fields, Mapping) or not isinstance(self.trace, Mapping):
            raise ValueError("The fields and the trace of what is unsent are mappings.")
        if not all(isinstance(text, str) for text in (self.key, *self.trace.values())):
            raise ValueError("The key of what is unsent is text, and so are its headers.")

    @classmethod
    def keyed(
        cls, deed: Deed, fields: Mapping[str, Any], trace: Mapping[str, str], *told: object
    ) -> Self:
        """A write whose key is made of it and of what else is told: the same again has the same."""
        text = json.dumps([deed, fields, *told], sort_keys=True)
        return cls(deed=deed, fields=fields, key=sha256(text.encode()).hexdigest(), trace=trace)
