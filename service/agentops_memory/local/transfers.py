"""Exports as they are made, and files as imports: the domain's carrying under the port."""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, cast

from agentops_memory_client.contract import reading
from agentops_memory_client.contract.models import Imported, ImportPlan
from agentops_memory_client.contract.port import Progress

from ..api.agentops import answers, exports, imports, spans, wire
from ..domain.transfer.transfer import Transfer
from ..telemetry import annotate
from .asked import Asked, project_of, read, refusing

# Readings of a document: it is checked, then come sessions and observations. What is staged of
# a large import takes about three times as long to be stored.
IMPORT, PLAN, STORING = 3, 5, 9

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTransfers(Asked):
    """A TransferService: documents and spans are those of AgentOps REST."""

    transfer: Transfer
    clock: Callable[[], datetime]

    async def export(
        self, project: str | None = None, *, progress: Progress | None = None
    ) -> AsyncGenerator[bytes, None]:
        with refusing():  # and no span: one cannot lie around what is handed out in between
            done, caller = 0, self.caller()
            pieces = exports.document(self.transfer, caller, project_of(project), self.clock())
            async for piece in pieces:
                self.caller()  # refuses by now, perhaps: then nothing more is told
                yield piece
                done += len(piece)
                if progress:
                    progress(done, None)

    async def import_from(self, path: StrPath, *, progress: Progress | None = None) -> Imported:
        with self._asked("import"):
            await self.transfer.resume(self.caller())  # perhaps of this file, and killed
            readings = IMPORT + STORING
            async with _document(path, self.clock(), readings, progress) as (document, told):
                counts = await self.transfer.import_all(self.caller(), document, told.stored)
            annotate(spans.imported(counts))
            answer = answers.json(wire.imported(counts), redacted=counts.redacted)
            return read(reading.imported, answer)

    async def plan_import(self, path: StrPath, *, progress: Progress | None = None) -> ImportPlan:
        with self._asked("import"):
            async with _document(path, self.clock(), PLAN, progress) as (document, _):
                plan = await self.transfer.plan_import(self.caller(), document)
            annotate(spans.import_plan(plan))
            return read(reading.import_plan, answers.json(wire.import_plan(plan)))


@asynccontextmanager
async def _document(
    path: StrPath, now: datetime, readings: int, progress: Progress | None
) -> AsyncIterator[tuple[imports.Document, "_Told"]]:
    """The file as a document that has been checked. OSError if it cannot be read."""
    with _opened(Path(path)) as file:
        told = _Told(file, os.fstat(file.fileno()).st_size, readings, progress)
        document = imports.Document(cast(BinaryIO, told), now)
        await asyncio.to_thread(document.check)
        yield document, told
        told.tell(told.size)


def _opened(path: Path) -> BinaryIO:
    file = path.open("rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(f"{path} is no regular file, so that it cannot be read again.")


@dataclass(slots=True)
class _Told:
    """A file that tells how far it has been read, of all readings."""

    file: BinaryIO
    size: int
    readings: int
    progress: Progress | None
    _done: int = 0

    def seek(self, at: int) -> int:
        return self.file.seek(at)

    def read(self, size: int) -> bytes:
        piece = self.file.read(size)
        self._done += len(piece)
        self.tell(min(self._done // self.readings, self.size))
        return piece

    def stored(self, rows: int, of: int) -> None:
        """Tell that so many of its rows are stored, after it was read."""
        self.tell(self.size * (IMPORT * of + STORING * rows) // (self.readings * of))

    def tell(self, done: int) -> None:
        if self.progress:
            self.progress(done, self.size)
