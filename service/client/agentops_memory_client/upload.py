"""A file on its way to the service, piece by piece."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO

import httpx

from .contract.models import Progress

PIECE = 64 * 1024  # bytes of a file that are held


class Upload(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A file as the body of a request, read piece by piece, each time from its start."""

    def __init__(self, file: BinaryIO, progress: Progress | None) -> None:
        self._file = file
        self._progress = progress
        self.size = os.fstat(file.fileno()).st_size

    def __iter__(self) -> Iterator[bytes]:
        sent = 0
        while piece := self._piece(sent):
            yield piece
            sent = self._told(sent + len(piece))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        sent = 0
        while piece := await asyncio.to_thread(self._piece, sent):
            yield piece
            sent = self._told(sent + len(piece))

    def _piece(self, at: int) -> bytes:
        self._file.seek(at)
        piece = self._file.read(min(PIECE, self.size - at))
        if not piece and at < self.size:
            raise OSError("The file became shorter while it was sent; nothing is stored.")
        return piece

    def _told(self, sent: int) -> int:
        if self._progress:
            self._progress(sent, self.size)
        return sent
