"""`MemoryClient`, whose methods block, and `AsyncMemoryClient`, whose methods are coroutines.

Both run the same coroutines. With a blocking httpx.Client a coroutine never suspends, so that one
step finishes it.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import BinaryIO, ClassVar, Generic, Self, TypeVar, cast

import httpx

from .contract import models, service
from .contract.models import Imported, ImportPlan, Progress, UnexpectedAnswer
from .contract.service import Blocking, Call, MemoryService, Method, Operations, StrPath, T, params
from .openwop import AsyncOpenWopMemory, OpenWopMemory
from .transport import Exchange, Timing, Upload, Verify

IMPORT_TIMEOUT = timedelta(minutes=10)  # the largest import takes several minutes
TIMEOUT = timedelta(seconds=10)  # longer than 5 s, after which the service refuses and says why
RETRIES = 2
DEFAULT_URL = "http://127.0.0.1:7437"

Transport = TypeVar("Transport")


MAX_PREFIX = 60  # characters of the target's name in a temporary name, whose length is limited


@contextmanager
def temporary(target: Path) -> Iterator[BinaryIO]:
    """Create a temporary file next to the target; remove it at the end unless it was renamed."""
    with tempfile.NamedTemporaryFile(
        dir=target.parent, prefix=f".{target.name[:MAX_PREFIX]}.", suffix=".part", delete=False
    ) as file:
        try:
            yield cast(BinaryIO, file)
        finally:
            Path(file.name).unlink(missing_ok=True)


def replace(target: Path, file: BinaryIO) -> None:
    """Flush the file to disk, then replace the target by it atomically."""
    file.flush()
    os.fsync(file.fileno())
    Path(file.name).replace(target)


class Client(Operations, Generic[Transport]):
    """A client of the service at `url`, which may have a path. Misconfigured if it is invalid.

    `timeout` limits connecting, and the wait between two pieces of a response. `retries` is how
    often a failed call is sent again at most (docs/client.md says when). The `key`, or the password
    in `url`, is sent to the host of `url` and nowhere else: redirects are not followed, and proxy
    variables of the environment are ignored. For https, `verify` may be an SSLContext with your own
    certificate authorities. `transport` is a transport of httpx.
    """

    _timing: ClassVar[Timing]
    _http: ClassVar[Callable[..., httpx.Client | httpx.AsyncClient]]
    _exchange: Exchange

    def __init__(
        self, url: str = DEFAULT_URL, *, key: str | None = None, timeout: timedelta = TIMEOUT,
        retries: int = RETRIES, verify: Verify = True, transport: Transport | None = None,
    ) -> None:  # fmt: skip
        self._exchange = Exchange(
            url, key, timeout=timeout, retries=retries, timing=self._timing, verify=verify,
            http=partial(self._http, transport=transport),
        )  # fmt: skip

    @classmethod
    def from_environment(
        cls, *, url: str | None = None, key: str | None = None, timeout: timedelta = TIMEOUT,
        retries: int = RETRIES,
    ) -> Self:  # fmt: skip
        """Return a client of the service at MEMORY_URL, with the key in MEMORY_API_KEY.

        Arguments override these variables; an empty variable counts as unset.
        """
        url = url or os.environ.get("MEMORY_URL") or DEFAULT_URL
        key = key or os.environ.get("MEMORY_API_KEY") or None
        return cls(url, key=key, timeout=timeout, retries=retries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._exchange.url!r})"

    @service.sends(
        "health", "GET", "health",
        read=lambda body, _: models.read_as(str, models.json_object(body).get("status")),
    )  # fmt: skip
    def health(self) -> str:  # type: ignore[empty-body]
        """Return `ok` if the service runs; Unavailable while it shuts down. Needs no key."""

    async def _export(
        self, project: str | None, progress: Progress | None
    ) -> AsyncGenerator[bytes, None]:
        call = Call(
            operation="export", method="GET", path=("export",), query=params(project=project),
            read=lambda _body, _headers: None,
        )  # fmt: skip
        response = await self._exchange.opened(call)
        length = response.headers.get("content-length")
        total, done, first, last = int(length) if length else None, 0, b"", b""
        async with aclosing(self._exchange.chunks(response)) as chunks:
            async for chunk in chunks:
                first, last, done = first or chunk[:1], (last + chunk)[-2:], done + len(chunk)
                if first != b"{":
                    break
                yield chunk
                if progress:
                    progress(done, total)
        if (first, last) != (b"{", b"]}"):
            raise UnexpectedAnswer(f"{self._exchange.url} did not answer with an export.")

    @Method
    async def export_to(
        self, path: StrPath, project: str | None = None, progress: Progress | None = None
    ) -> int:
        """Write sessions and observations of a project to a JSON file; return its size in bytes.

        Without a project, export all. The file is replaced atomically, and only its owner may read
        it. On failure an existing file is unchanged. OSError if the file cannot be written.
        """
        target, exchange, size = service.regular(path), self._exchange, 0
        with temporary(target) as file:
            async with aclosing(self._export(project, progress)) as chunks:
                async for chunk in chunks:
                    size += await exchange.run_in_thread(file.write, chunk)
            await exchange.run_in_thread(replace, target, file)
        return size

    @Method
    async def import_from(self, path: StrPath, progress: Progress | None = None) -> Imported:
        """Import an export file; rows that the service has already are skipped and not counted.

        The file is checked before anything is stored. If the response is lost, the call raises
        Unreachable without a retry: all or part of the file may be stored, and it is safe to import
        it again. OSError if the file cannot be read.
        """
        return await self._import(path, progress, Imported)

    @Method
    async def plan_import(self, path: StrPath, progress: Progress | None = None) -> ImportPlan:
        """Return what an import of the file would do. OSError if the file cannot be read."""
        return await self._import(path, progress, ImportPlan)

    async def _import(self, path: StrPath, progress: Progress | None, of: type[T]) -> T:
        dry_run = of is ImportPlan
        with service.regular(path).open("rb") as file:
            call = Call(
                operation="import", method="POST", path=("import",), query=params(dry_run=dry_run),
                read=models.noun(of), is_idempotent=dry_run, timeout=IMPORT_TIMEOUT,
            )  # fmt: skip
            return await self._exchange.send(call, Upload(file, progress))


class MemoryClient(Blocking, Client[httpx.BaseTransport]):
    """A blocking client of a running service; threads may share it.

    Use it in `with`, or call `close` at the end. `Client` documents the parameters.
    """

    _timing = Timing(sleep=time.sleep)
    _http = httpx.Client

    @property
    def openwop(self) -> OpenWopMemory:
        """Memory of workflow runs, as OpenWOP defines it."""
        return OpenWopMemory(self._exchange)

    def export(
        self, project: str | None = None, progress: Progress | None = None
    ) -> Generator[bytes, None, None]:
        """Yield all sessions and observations of the project, or of all, as chunks of JSON.

        Unreachable if the response is incomplete, UnexpectedAnswer if it is not an export;
        discard the chunks received before.
        """
        chunks = self._export(project, progress)
        try:
            while (chunk := service.run_now(anext(chunks, None))) is not None:
                yield chunk
        finally:
            service.run_now(chunks.aclose())

    def close(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        service.run_now(self._exchange.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class AsyncMemoryClient(Client[httpx.AsyncBaseTransport], MemoryService):
    """An asyncio client of a running service; tasks may share it.

    Use it in `async with`, or call `aclose` at the end. `Client` documents the parameters.
    """

    _timing = Timing(sleep=asyncio.sleep)
    _http = httpx.AsyncClient

    @property
    def openwop(self) -> AsyncOpenWopMemory:
        """Memory of workflow runs, as OpenWOP defines it."""
        return AsyncOpenWopMemory(self._exchange)

    def export(
        self, project: str | None = None, progress: Progress | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Like `MemoryClient.export`, for `async for`."""
        return self._export(project, progress)

    async def aclose(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        await self._exchange.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.aclose()
