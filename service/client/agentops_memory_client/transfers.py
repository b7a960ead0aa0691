"""What is too large for one answer: exports and imports, as streams and as files."""

import os
import stat
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, cast

from .contract import reading
from .contract.call import Call, T, given
from .contract.errors import UnexpectedAnswer
from .contract.models import Imported, ImportPlan, Progress
from .exchange import Exchange
from .upload import Upload

IMPORT = timedelta(minutes=10)  # until an import is answered; the largest takes some of them


async def export(
    exchange: Exchange, project: str | None = None, progress: Progress | None = None
) -> AsyncGenerator[bytes, None]:
    """Every session and observation of the project, or of all, as JSON: bytes as they come.

    Unreachable if the answer is cut, UnexpectedAnswer if it is something else:
    what came until then is no export.
    """
    call = Call(
        operation="export", method="GET", path=("export",), query=given(project=project),
        read=_unread,
    )  # fmt: skip
    answer = await exchange.opened(call)
    said = answer.headers.get("content-length")
    total, done, first, last = int(said) if said else None, 0, b"", b""
    async with aclosing(exchange.pieces(answer)) as pieces:
        async for piece in pieces:
            first, last, done = first or piece[:1], (last + piece)[-2:], done + len(piece)
            if first != b"{":
                break
            yield piece
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
    """Every session and observation of the project, or of all, as a file of JSON; its bytes.

    The file is there when it is whole: what was at the path stays until then,
    and when anything fails nothing is left behind. Its owner alone may read it.
    OSError if it cannot be written.
    """
    target, aside, size = _target(path), exchange.line.aside, 0
    with _beside(target) as file:
        async with aclosing(export(exchange, project, progress)) as pieces:
            async for piece in pieces:
                size += await aside(file.write, piece)
        await aside(_settle, file, target)
    return size


async def import_from(
    exchange: Exchange, path: str | os.PathLike[str], progress: Progress | None = None
) -> Imported:
    """Store what an export holds and the service does not, whole or not at all.

    What is there already is left alone and not counted. If the answer is lost,
    that is Unreachable and not tried again: the import may be done, and a
    second one would count nothing. OSError if the file cannot be read.
    """
    return await _sent(exchange, path, progress, _import(reading.imported, is_dry=False))


async def plan_import(
    exchange: Exchange, path: str | os.PathLike[str], progress: Progress | None = None
) -> ImportPlan:
    """What an import of the file would do; nothing is stored. OSError if it cannot be read."""
    return await _sent(exchange, path, progress, _import(reading.import_plan, is_dry=True))


def _import(read: Callable[[bytes, reading.Headers], T], *, is_dry: bool) -> Call[T]:
    return Call(
        operation="import", method="POST", path=("import",), query=given(dry_run=is_dry), read=read,
        is_repeatable=is_dry, within=IMPORT,
    )  # fmt: skip


async def _sent(
    exchange: Exchange, path: str | os.PathLike[str], progress: Progress | None, call: Call[T]
) -> T:
    with _opened(Path(path)) as file:
        return await exchange.ask(call, Upload(file, progress))


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
def _beside(target: Path) -> Iterator[BinaryIO]:
    """A new file beside the target, which is gone at the end if it has not become that."""
    with tempfile.NamedTemporaryFile(
        dir=target.parent, prefix=f".{target.name[:60]}.", suffix=".part", delete=False
    ) as file:
        try:
            yield cast(BinaryIO, file)
        finally:
            with suppress(FileNotFoundError):
                Path(file.name).unlink()


def _settle(file: BinaryIO, target: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    Path(file.name).replace(target)


def _unread(_: bytes, __: reading.Headers) -> None:
    """An export is not read."""
