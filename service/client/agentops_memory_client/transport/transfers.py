"""Exports and imports: streamed, as bytes and as files."""

import os
import stat
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, cast

from ..contract import reading
from ..contract.call import Call, T, given
from ..contract.errors import UnexpectedAnswer
from ..contract.models import Imported, ImportPlan, Progress
from .exchange import Exchange, Upload

IMPORT_TIMEOUT = timedelta(minutes=10)  # the largest import takes some of them


async def export(
    exchange: Exchange, project: str | None = None, progress: Progress | None = None
) -> AsyncGenerator[bytes, None]:
    """Every session and observation of the project, or of all, as chunks of a JSON document.

    Unreachable if the answer is incomplete, UnexpectedAnswer if it is no export;
    the chunks until then are to be discarded.
    """
    call = Call(
        operation="export", method="GET", path=("export",), query=given(project=project),
        read=lambda _body, _headers: None,
    )  # fmt: skip
    response = await exchange.opened(call)
    length = response.headers.get("content-length")
    total, done, first, last = int(length) if length else None, 0, b"", b""
    async with aclosing(exchange.chunks(response)) as chunks:
        async for chunk in chunks:
            first, last, done = first or chunk[:1], (last + chunk)[-2:], done + len(chunk)
            if first != b"{":
                break
            yield chunk
            if progress:
                progress(done, total)
    if (first, last) != (b"{", b"]}"):
        raise UnexpectedAnswer(f"{exchange.url} answers something else than an export.")


async def export_to(
    exchange: Exchange,
    path: str | os.PathLike[str],
    project: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Write every session and observation of the project, or of all, to a JSON file; its bytes.

    The file is replaced atomically, and is readable by its owner alone: on
    failure an existing one is unchanged, and no temporary file is left. OSError
    if it cannot be written.
    """
    target, run_in_thread, size = _target(path), exchange.backend.run_in_thread, 0
    with _temporary(target) as file:
        async with aclosing(export(exchange, project, progress)) as chunks:
            async for chunk in chunks:
                size += await run_in_thread(file.write, chunk)
        await run_in_thread(_replace, target, file)
    return size


async def import_from(
    exchange: Exchange, path: str | os.PathLike[str], progress: Progress | None = None
) -> Imported:
    """Store what an export holds and the service does not, all of it or nothing.

    What exists already is left alone and not counted. A lost answer is
    Unreachable and not retried: the import may be done, and a second one would
    count nothing. OSError if the file cannot be read.
    """
    return await _import(exchange, path, progress, reading.noun(Imported), dry_run=False)


async def plan_import(
    exchange: Exchange, path: str | os.PathLike[str], progress: Progress | None = None
) -> ImportPlan:
    """What an import of the file would do; nothing is stored. OSError if it cannot be read."""
    return await _import(exchange, path, progress, reading.noun(ImportPlan), dry_run=True)


async def _import(
    exchange: Exchange,
    path: str | os.PathLike[str],
    progress: Progress | None,
    read: Callable[[bytes, reading.Headers], T],
    *,
    dry_run: bool,
) -> T:
    with _opened(Path(path)) as file:
        call = Call(
            operation="import", method="POST", path=("import",), query=given(dry_run=dry_run),
            read=read, is_idempotent=dry_run, within=IMPORT_TIMEOUT,
        )  # fmt: skip
        return await exchange.send(call, Upload(file, progress))


def _opened(path: Path) -> BinaryIO:
    file = path.open("rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(f"{path} is no regular file, so that its size is not known.")


def _target(path: str | os.PathLike[str]) -> Path:
    target = Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; an export is a file.")
    return target


@contextmanager
def _temporary(target: Path) -> Iterator[BinaryIO]:
    """A temporary file beside the target, removed at the end unless it has replaced it."""
    with tempfile.NamedTemporaryFile(
        dir=target.parent, prefix=f".{target.name[:60]}.", suffix=".part", delete=False
    ) as file:
        try:
            yield cast(BinaryIO, file)
        finally:
            with suppress(FileNotFoundError):
                Path(file.name).unlink()


def _replace(target: Path, file: BinaryIO) -> None:
    """The target by the file, which is on disk before."""
    file.flush()
    os.fsync(file.fileno())
    Path(file.name).replace(target)
