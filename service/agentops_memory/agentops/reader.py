"""A process that reads import documents: it decodes, checks, redacts and prepares the rows.

In the service this would block all other threads for 130 µs a row. The process takes 0.3 s to start
and 45 MiB, so the first long document starts it, and it ends when no document comes for a while.
Without a process, a thread does the same work.
"""

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from io import BytesIO
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

from .. import __version__
from ..errors import Refusal
from ..light import fields, replace
from ..memory.imports import Row
from ..memory.memory import NO_LIFECYCLE, NO_LINKS, Memory, PreparedMemory, Session
from ..memory.redactor import Redactor
from ..memory.rows import EPOCH
from ..recall.text import content_hash, prepared
from ..secrets.redaction import DEFAULT_RULES, Rules
from . import transfer

SHORT = 512 * 1024  # bytes; a thread reads shorter documents, which are little more than a chunk
ROOM = 192 * 1024 * 1024  # bytes that the memory limit must allow: 102 MiB, and page cache
OLD_LIMIT = "/sys/fs/cgroup/memory/memory.limit_in_bytes"  # of cgroup v1
PART = 32  # rows of one message: other threads wait while it is read
IDLE = 300.0  # seconds without a document after which the process ends

END = [pickle.dumps({})]  # after the last rows


class Reader:
    """The client of the process, for one document at a time; any thread may use it."""

    def __init__(self, *, may_start: bool = True) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._may_start = may_start and bool(sys.executable)
        self._lock = Lock()  # held during a start, and from a request to its response
        self._connection: Connection | None = None
        self._file: BinaryIO | None = None  # the open document

    def prepare(self, size: int) -> None:
        """Start the process for a document of this many bytes, which is still being received."""
        if self._may_start and size >= SHORT and not self._lock.locked():
            with suppress(OSError), self._lock:
                self._ensure_started()

    def opened(self, file: BinaryIO, now: datetime) -> dict[str, int] | None:
        """Open a document and return the number of rows in each list; then call `rows` until `end`.

        Returns None if the process cannot be used now, or if the document is invalid. Raises
        OSError if the document is still in memory and the disk is full: it may then be lost.
        """
        if not self._may_start or file.seek(0, os.SEEK_END) < SHORT:
            return None
        handle = file.fileno()
        file.flush()
        if not self._lock.acquire(blocking=False):
            return None
        counts: dict[str, int] | None = None
        try:
            if self._file is None:
                self._ensure_started()
                counts = self._request(now, handle)
                self._file = file if counts is not None else None
        except (OSError, EOFError):
            return None
        finally:
            self._lock.release()
        return counts

    def rows(
        self, file: BinaryIO, rules: Rules, most: int
    ) -> Iterator[tuple[list[Row], dict[str, int]]]:
        """Yield up to `most` redacted rows at a time, and the number of secrets removed by kind.

        Raises OSError or EOFError if the process ends, or the document is no longer open.
        """
        # A copy has no cache: it would hold hashes of texts, which differ between processes.
        message: object = replace(rules), most
        while True:
            rows: list[Row] = []
            with self._lock:
                if self._file is not file:
                    raise EOFError
                part = self._request(message)
                while isinstance(part, list):
                    rows += part
                    part = self._request()
            if not rows:
                return
            yield rows, part
            message = True

    def _request(self, message: object = None, *files: int) -> Any:
        """Send a message, if there is one, and return the next message of the process."""
        try:
            if self._connection is None or self.process is None:
                raise EOFError
            if message is not None:
                self._connection.send(message)
            for file in files:
                send_handle(self._connection, file, self.process.pid)
            return self._connection.recv()
        except (OSError, EOFError):
            self._forget()
            raise

    def end(self, file: BinaryIO) -> None:
        """Close a document, if it is the open one."""
        with self._lock, suppress(OSError):
            if self._file is file and self._connection is not None:
                self._file = None
                self._connection.send(None)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()  # so that waiting threads continue
        with self._lock:
            self._forget()

    def _ensure_started(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        self._forget()
        self._connection, theirs = Pipe()
        # It imports from the paths of this process, not from its own working directory.
        program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-c", program, __version__],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
                start_new_session=True,  # it must not get signals for the service's group
            )  # fmt: skip

    def _forget(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self._connection is not None:
            self._connection.close()
        self.process = self._connection = self._file = None


def has_room() -> bool:
    """Whether there are two CPUs and enough memory: beyond a limit the service may be killed."""
    limit = "max"
    with suppress(OSError):
        group = Path("/proc/self/cgroup").read_text("utf-8").rpartition("0::")[2].strip()
        limits = Path(f"/sys/fs/cgroup/{group}/memory.max"), Path(OLD_LIMIT)
        limit = next((it.read_text("ascii").strip() for it in limits if it.exists()), limit)
    return (os.cpu_count() or 1) > 1 and (limit == "max" or int(limit) >= ROOM)


def main() -> None:
    """Read documents until the service ends or has sent none for a while."""
    (version,) = sys.argv[1:]
    if version != __version__:  # an upgrade has replaced the files meanwhile
        return
    with suppress(OSError):  # if memory is short, this process is killed first
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    gc.set_threshold(100_000)  # rows leave no cyclic garbage
    # Load what the first document needs, while it is still being received.
    row = b'{"session_id": "s", "type": "t", "title": "t", "content": "c", "project": "p"}'
    document = transfer.Document(BytesIO(b'{"observations": [%b]}' % row), EPOCH)
    document.check()
    list(_pieces(document, DEFAULT_RULES, 1))
    with Connection(os.dup(0)) as connection, suppress(EOFError, OSError):
        while connection.poll(IDLE):
            now, file = connection.recv(), recv_handle(connection)
            # Reopened, to have a file position of its own.
            with os.fdopen(file), Path(f"/dev/fd/{file}").open("rb") as opened:
                _read(connection, transfer.Document(opened, now))


def _read(connection: Connection, document: "transfer.Document") -> None:
    try:
        document.check()
    except Refusal:  # the service finds it again and reports it
        connection.send(None)
        return
    connection.send(document.counts)
    pieces: Iterator[list[bytes]] = iter(())
    piece = END
    while (message := connection.recv()) is not None:
        if message is not True:
            pieces = _pieces(document, *message)
            piece = next(pieces, END)
        for part in piece:
            connection.send_bytes(part)
        piece = next(pieces, END)  # while the service stores the last one


def _pieces(document: "transfer.Document", rules: Rules, most: int) -> Iterator[list[bytes]]:
    """Yield pickled rows in parts, and the number of secrets removed by kind as the last part."""
    redactor = Redactor(rules)
    for rows in transfer.chunks_of(redactor, document, most):
        ready = list(map(_prepared, rows))
        parts = [pickle.dumps(ready[at : at + PART]) for at in range(0, len(ready), PART)]
        yield [*parts, pickle.dumps(dict(redactor.kinds))]
        redactor.kinds.clear()


def _prepared(row: Row) -> Row:
    """Return a memory with its words prepared; a session, or one with a lifecycle, as it is."""
    if isinstance(row, Session) or (row.lifecycle, row.links) != (NO_LIFECYCLE, NO_LINKS):
        return row
    text = row.text
    words = tuple(prepared(text, text.title, text.content, text.tags))
    known = dict(zip(_FIELDS, _values(row), strict=True))
    known["content_hash"] = content_hash(text.content)
    return PreparedMemory(**known, prepared=words)


_FIELDS = [it.name for it in fields(Memory)]
_values = attrgetter(*_FIELDS)
