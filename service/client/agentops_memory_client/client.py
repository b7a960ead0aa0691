"""`MemoryClient`, whose methods block, and `AsyncMemoryClient`, whose methods are coroutines.

Both run the same coroutines. Over the backend that blocks they never suspend: each finishes in
one step.
"""

import asyncio
import os
import re
import ssl
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import aclosing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, ClassVar, Generic, Self, TypeVar, cast

import httpx

from .contract import __version__, models, service
from .contract.models import Imported, ImportPlan, Misconfigured, Progress, UnexpectedAnswer
from .contract.service import Blocking, Call, MemoryService, Method, Questions, T, params
from .openwop import AsyncOpenWopMemory, OpenWopMemory
from .transport import AsyncBackend, BlockingBackend, Exchange, Timing, Upload, address, tls_context

IMPORT_TIMEOUT = timedelta(minutes=10)  # the largest import takes some of them
TIMEOUT = timedelta(seconds=10)  # the service refuses after 5 s, with a reason
RETRIES = 2
DEFAULT_URL = "http://127.0.0.1:7437"

Transport = TypeVar("Transport")

_KEY = re.compile(r"[!-~]+")


def _target(path: str | os.PathLike[str]) -> Path:
    target = Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; an export is a file.")
    return target


LONGEST = 60  # characters of a name in that of a temporary file, which has a limit of its own


def temporary_name(of: str, random: str) -> str:
    return f".{of}.{random}.part"


@contextmanager
def temporary(target: Path) -> Iterator[BinaryIO]:
    """A temporary file beside the target, removed at the end unless it has replaced it."""
    prefix, suffix = temporary_name(target.name[:LONGEST], "/").split("/")
    with tempfile.NamedTemporaryFile(
        dir=target.parent, prefix=prefix, suffix=suffix, delete=False
    ) as file:
        try:
            yield cast(BinaryIO, file)
        finally:
            Path(file.name).unlink(missing_ok=True)


def replace(target: Path, file: BinaryIO) -> None:
    """The target by the file, which is on disk before."""
    file.flush()
    os.fsync(file.fileno())
    Path(file.name).replace(target)


class Client(Questions, Generic[Transport]):
    """A client of the service at `url`, which may have a path; Misconfigured if it is invalid.

    `timeout` is the connect timeout, and the read timeout between two pieces of an answer;
    `retries` is how often a call is sent again (docs/client.md says when). The `key`, or the
    password in the url, is sent to the url's host and nowhere else: redirects are not followed, and
    the proxy variables of the environment are ignored. `verify` is for https: an SSLContext with
    certificate authorities of your own. `transport` is httpx's.
    """

    _timing: ClassVar[Timing]
    _exchange: Exchange

    def __init__(
        self, url: str = DEFAULT_URL, *, key: str | None = None, timeout: timedelta = TIMEOUT,
        retries: int = RETRIES, verify: ssl.SSLContext | bool = True,
        transport: Transport | None = None,
    ) -> None:  # fmt: skip
        base, own_key = address(url, key)
        self._exchange = Exchange(
            base=base, timeout=timeout, retries=retries, timing=self._timing,
            headers=_headers(base, own_key),
            backend=self._backend(transport, tls_context(base, verify)),
        )  # fmt: skip

    @classmethod
    def from_environment(
        cls, *, url: str | None = None, key: str | None = None, timeout: timedelta = TIMEOUT,
        retries: int = RETRIES,
    ) -> Self:  # fmt: skip
        """A client of the service that MEMORY_URL names, with the key in MEMORY_API_KEY.

        Arguments take precedence; an empty variable counts as unset.
        """
        named = url or os.environ.get("MEMORY_URL") or DEFAULT_URL
        known = key or os.environ.get("MEMORY_API_KEY") or None
        return cls(named, key=known, timeout=timeout, retries=retries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._exchange.url!r})"

    def _backend(
        self, transport: Transport | None, verify: ssl.SSLContext | bool
    ) -> BlockingBackend | AsyncBackend:
        raise NotImplementedError

    @service.sends(
        "health", "GET", "health",
        read=lambda body, _: models.read_as(str, models.json_object(body).get("status")),
    )  # fmt: skip
    def health(self) -> str:  # type: ignore[empty-body]
        """`ok` if the service runs; Unavailable while it ends. It needs no key."""

    async def _export(
        self, project: str | None = None, progress: Progress | None = None
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
        self, path: str | os.PathLike[str], project: str | None = None,
        progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Write every session and observation of the project, or of all, to a JSON file; its bytes.

        The file is replaced atomically, and is readable by its owner alone: on failure an existing
        one is unchanged, and no temporary file is left. OSError if it cannot be written.
        """
        target, run_in_thread, size = _target(path), self._exchange.backend.run_in_thread, 0
        with temporary(target) as file:
            async with aclosing(self._export(project, progress)) as chunks:
                async for chunk in chunks:
                    size += await run_in_thread(file.write, chunk)
            await run_in_thread(replace, target, file)
        return size

    @Method
    async def import_from(
        self, path: str | os.PathLike[str], progress: Progress | None = None
    ) -> Imported:
        """Store what an export holds and the service does not, all of it or nothing.

        What exists already is left alone and not counted. A lost answer is
        Unreachable and not retried: the import may be done, and a second one would
        count nothing. OSError if the file cannot be read.
        """
        return await self._import(path, progress, Imported, dry_run=False)

    @Method
    async def plan_import(
        self, path: str | os.PathLike[str], progress: Progress | None = None
    ) -> ImportPlan:
        """What an import of the file would do; nothing is stored. OSError if it cannot be read."""
        return await self._import(path, progress, ImportPlan, dry_run=True)

    async def _import(
        self, path: str | os.PathLike[str], progress: Progress | None, of: type[T], *, dry_run: bool
    ) -> T:
        with service.regular_file(path, "so its size is not known") as file:
            call = Call(
                operation="import", method="POST", path=("import",), query=params(dry_run=dry_run),
                read=models.noun(of), is_idempotent=dry_run, within=IMPORT_TIMEOUT,
            )  # fmt: skip
            return await self._exchange.send(call, Upload(file, progress))


def _headers(base: httpx.URL, key: str | None) -> httpx.Headers:
    """The headers of every request. Misconfigured for what cannot be a key."""
    if key and not _KEY.fullmatch(key):
        raise Misconfigured("The key contains characters that are not valid in a key.")
    return httpx.Headers({
        "Host": base.netloc.decode("ascii"), "Accept": "application/json",
        "Accept-Encoding": "identity", "User-Agent": f"agentops-memory-python/{__version__}",
        **({"Authorization": f"Bearer {key}"} if key else {}),
    })  # fmt: skip


class MemoryClient(Blocking, Client[httpx.BaseTransport]):
    """A client of a running service that blocks; many threads may share it.

    Use it in `with`, or call `close` at the end. `Client` documents its parameters.
    """

    _timing = Timing(sleep=time.sleep)

    def _backend(
        self, transport: httpx.BaseTransport | None, verify: ssl.SSLContext | bool
    ) -> BlockingBackend:
        self._http = httpx.Client(transport=transport, verify=verify, trust_env=False)
        return BlockingBackend(self._http)

    @property
    def openwop(self) -> OpenWopMemory:
        """Memory of workflow runs, after OpenWOP."""
        return OpenWopMemory(self._exchange)

    def export(
        self, project: str | None = None, progress: Progress | None = None
    ) -> Generator[bytes, None, None]:
        """Every session and observation of the project, or of all, as chunks of a JSON document.

        Unreachable if the answer is incomplete, UnexpectedAnswer if it is no export;
        the chunks until then are to be discarded.
        """
        chunks = self._export(project, progress)
        try:
            while (chunk := service.finished(anext(chunks, None))) is not None:
                yield chunk
        finally:
            service.finished(chunks.aclose())

    def close(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class AsyncMemoryClient(Client[httpx.AsyncBaseTransport], MemoryService):
    """A client of a running service for asyncio; many tasks may share it.

    Use it in `async with`, or call `aclose` at the end. `Client` documents its parameters.
    """

    _timing = Timing(sleep=asyncio.sleep)

    def _backend(
        self, transport: httpx.AsyncBaseTransport | None, verify: ssl.SSLContext | bool
    ) -> AsyncBackend:
        self._http = httpx.AsyncClient(transport=transport, verify=verify, trust_env=False)
        return AsyncBackend(self._http)

    @property
    def openwop(self) -> AsyncOpenWopMemory:
        """Memory of workflow runs, after OpenWOP."""
        return AsyncOpenWopMemory(self._exchange)

    def export(
        self, project: str | None = None, progress: Progress | None = None
    ) -> AsyncGenerator[bytes, None]:
        """As `MemoryClient.export`, for `async for`."""
        return self._export(project, progress)

    async def aclose(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.aclose()
