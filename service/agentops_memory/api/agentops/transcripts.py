"""The messages of a transcript, one at a time: of a file, or of a body."""

from collections.abc import Iterator, Mapping
from typing import BinaryIO

from ...domain.text.summary import Message
from ..kit.http import is_empty
from ..kit.json_reader import entries
from . import models as m
from . import wire


def uploaded(file: BinaryIO) -> Iterator[Message]:
    """The messages in a file; none if it is empty. It is read where they are asked for."""
    if is_empty(file):
        return
    for _, place, given in entries(file, ("messages",)):
        yield _message(given, place)


def sent(given: object) -> Iterator[Message]:
    """The messages in a body, which must have some or an empty list of them."""
    wire.body(m.Messages, given)
    assert isinstance(given, Mapping)  # else it was refused
    for place, each in enumerate(given["messages"]):
        yield _message(each, place)


def _message(given: object, place: int) -> Message:
    told = wire.body(m.MessageBody, {} if given is None else given, f"messages[{place}]")
    return Message(role=told.role or "", content=told.content or "")
