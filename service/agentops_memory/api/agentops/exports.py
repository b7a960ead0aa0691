"""An export, piece by piece: what is written is not held, however much there is."""

from collections.abc import AsyncIterator, Iterable
from datetime import datetime

from pydantic import BaseModel

from ...domain.model.access import Caller
from ...domain.model.space import Project
from ...domain.text.instants import rendered
from ...domain.transfer.transfer import Transfer
from . import wire


async def document(
    transfer: Transfer, caller: Caller, project: Project | None, now: datetime
) -> AsyncIterator[bytes]:
    """The JSON of every session and every memory of the project, or of all."""
    piece = f'{{"exported_at":"{rendered(now)}","sessions":['.encode()
    comma = b""
    async for sessions in transfer.sessions(caller, project):
        yield piece + comma + _joined(map(wire.session_row, sessions))
        piece, comma = b"", b","
    piece, comma = piece + b'],"observations":[', b""
    async for memories in transfer.memories(caller, project):
        yield piece + comma + _joined(map(wire.exported, memories))
        piece, comma = b"", b","
    yield piece + b"]}"


def _joined(models: Iterable[BaseModel]) -> bytes:
    return b",".join(map(wire.json_bytes, models))
