"""A file as the body of a request."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO

import httpx

from ..contract.models import Progress

CHUNK = 64 * 1024  # bytes of a file that are in memory at once


class Upload(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A file as the body of a request, read in chunks, for each attempt from its start."""

    def __init__(self, file: BinaryIO, progress: Progress | None) -> None:
        self._file = file
        self._progress = progress
        self.size = os.fstat(file.fileno()).st_size

    def __iter__(self) -> Iterator[bytes]:
        sent = 0
        while chunk := self._chunk(sent):
            yield chunk
            sent = self._report(sent + len(chunk))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        sent = 0
        while chunk := await asyncio.to_thread(self._chunk, sent):
            yield chunk
            sent = self._report(sent + len(chunk))

    def _chunk(self, offset: int) -> bytes:
        self._file.seek(offset)
        chunk = self._file.read(min(CHUNK, self.size - offset))
        if not chunk and offset < self.size:
            raise OSError("The file became shorter while it was sent; nothing is stored.")
        return chunk

    def _report(self, sent: int) -> int:
        if self._progress:
            self._progress(sent, self.size)
        return sent
