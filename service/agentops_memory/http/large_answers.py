"""Large answers: how many may be on their way at a time, and how their bytes are sent.

A client that does not read leaves its answer in memory for as long as it likes. So an answer
of more than `LARGE` bytes needs a slot. A request for a lot waits for one before anything is
read; any other takes one once the size of its answer is known. A slot is free again when the
answer was sent, or its client has gone.
"""

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import timedelta
from typing import Self, TypeVar
from weakref import WeakValueDictionary

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ..errors import Refusal, TooMany, Unavailable
from ..light import dataclass
from ..memory.access import KeyId
from .protocol import Operation, TooSlow

LARGE = 256 * 1024  # bytes
PIECE = 64 * 1024  # bytes of one send, as many as a transport keeps before it lets senders wait
MANY = 100  # rows; a default page has no more, so only a request for a lot waits for a slot

LISTS_OF_A_KEY = 3  # in the making at a time
LISTS_TIMEOUT = 5.0  # seconds
SLOT = 2 * 1024 * 1024  # bytes of an answer for each of its slots; few are longer
SLOTS_OF_A_KEY = 6  # a browser opens as many connections to a host
SLOTS = 12  # each keeps up to 4 MiB: with the 80 MiB of the service, less than the 128 of a pod
SLOT_TIMEOUT = 2.0  # seconds; a client that reads has taken an answer long before
PIECE_TIMEOUT = 120.0  # seconds for a piece; slower, a client could keep its slot permanently

# A save changes threads five times; beside a thread that reads an import or a large list, each of
# these waits for as long as Python lets that one keep its lock: 5 ms by default.
SWITCH_INTERVAL = timedelta(microseconds=300)

CROWD = "This key has too many large requests in progress; wait for some of the responses."
UNREAD_OF_KEY = "This key has too many unread large responses; read them first."
UNREAD = "Too many large responses are still unread; try again."
TOO_SLOW = "The client reads its response too slowly."

SAFE = ("GET", "HEAD")

T = TypeVar("T")


class _Readers:
    count = 0
    before = 0.0


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Inside, a thread keeps Python's lock for `SWITCH_INTERVAL` while others want it.

    For the loop's thread alone; it may be entered by many requests at once. Always on it would
    cost searches a tenth of their processor time.
    """
    if not _Readers.count:
        _Readers.before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL.total_seconds())
    _Readers.count += 1
    try:
        yield
    finally:
        _Readers.count -= 1
        if not _Readers.count:
            sys.setswitchinterval(_Readers.before)


class LargeAnswers:
    def __init__(self) -> None:
        self._lists: WeakValueDictionary[KeyId | None, _Lists] = WeakValueDictionary()
        self._large = asyncio.Lock()
        self._taken: Counter[KeyId | None] = Counter()
        self.freed = asyncio.Event()

    async def made(self, key: KeyId | None, make: Callable[[], Awaitable[Response]]) -> Response:
        """Read and render a list: LISTS_OF_A_KEY of a key at a time, of large ones one of all keys.

        Raises TooMany if the key's other lists leave no place within LISTS_TIMEOUT.
        """
        lists = self._lists.get(key) or self._lists.setdefault(key, _Lists())
        try:
            async with asyncio.timeout(LISTS_TIMEOUT if lists.places.locked() else None):
                await lists.places.acquire()
        except TimeoutError:
            raise TooMany(CROWD) from None
        try:
            # What a key asks for next is likely as large as what it was answered last.
            async with self._alone() if lists.are_large else nullcontext():
                answer = await make()
            lists.are_large = len(getattr(answer, "body", b"")) > LARGE
            return answer
        finally:
            lists.places.release()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Inside, one list is made; the next waits half as long, while others have the loop."""
        await self._large.acquire()
        began = time.monotonic()
        try:
            with short_switch_interval():
                yield
        finally:
            pause = (time.monotonic() - began) / 2
            asyncio.get_running_loop().call_later(pause, self._large.release)

    def refusal(self, key: KeyId | None, count: int, own: int = 0) -> Refusal | None:
        """Why an answer that has `own` slots may not have `count`; None if it is the only one."""
        others_of_key, others = self._taken[key] - own, self._taken.total() - own
        if others_of_key and others_of_key + count > SLOTS_OF_A_KEY:
            return TooMany(UNREAD if key is None else UNREAD_OF_KEY)
        if others and others + count > SLOTS:
            return Unavailable(UNREAD)
        return None

    def add(self, key: KeyId | None, more: int) -> None:
        """Count slots as taken; with a negative number, as free."""
        self._taken[key] += more
        if not self._taken[key]:
            del self._taken[key]
        if more < 0:
            self.freed.set()  # wakes all that wait now, each of which looks again
            self.freed.clear()


class _Lists:
    def __init__(self) -> None:
        self.places = asyncio.Semaphore(LISTS_OF_A_KEY)
        self.are_large = False


@dataclass(slots=True)
class Slot:
    """What one answer has taken of the slots; released at the end of the block."""

    _slots: LargeAnswers
    _key: KeyId | None
    _count: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resize(0)

    async def wait(self) -> None:
        """Take one for an answer whose size is not known yet. Raises TooMany or Unavailable."""
        refusal = None
        try:
            async with asyncio.timeout(SLOT_TIMEOUT):
                while refusal := self._slots.refusal(self._key, 1):
                    await self._slots.freed.wait()
        except TimeoutError:
            assert refusal is not None
            raise refusal from None
        self._resize(1)

    async def send(self, answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
        """Send an answer by pieces, with the slots that its size needs.

        Without a slot a read is refused, with TooMany or Unavailable. A write is answered, as its
        client would repeat it, but only with what the client takes without delay.
        """
        body, timeout = getattr(answer, "body", None), PIECE_TIMEOUT
        size = SLOT if body is None else len(body)  # none of an answer that is streamed
        count, refusal = -(-size // SLOT) if size > LARGE else 0, None
        if count > self._count:
            refusal = self._slots.refusal(self._key, count, self._count)
        if refusal is None:
            self._resize(count)
        elif scope["method"] in SAFE:
            raise refusal
        else:
            timeout = 0.0
        await answer(scope, receive, _in_pieces(send, timeout))

    def _resize(self, count: int) -> None:
        if count != self._count:
            self._slots.add(self._key, count - self._count)
            self._count = count


async def paced(parts: Iterable[T], size: Callable[[T], int]) -> AsyncIterator[T]:
    """The parts; after each PIECE bytes, everything else that waits for the loop goes first.

    Rendering a large answer takes the loop several milliseconds, and a save needs several turns.
    """
    room = PIECE
    for part in parts:
        yield part
        room -= size(part)
        if room < 0:
            room = PIECE
            await asyncio.sleep(0)


def row_counts(operation: Operation) -> re.Pattern[bytes] | None:
    """A pattern for the row counts in a query that reads; None if there are none."""
    names = "|".join(each.name for each in operation.query if each.is_row_count)
    reads = names and operation.method == "GET"
    return re.compile(rf"(?:^|&)(?:{names})=(\d{{1,18}})".encode()) if reads else None


def _in_pieces(send: Send, timeout: float) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] != "http.response.body":
            await send(message)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        for start in range(0, max(len(body), 1), PIECE):
            end = start + PIECE
            is_last = not more and end >= len(body)
            if start:
                await asyncio.sleep(0)  # a client that reads takes megabytes without a pause
            try:
                async with asyncio.timeout(timeout):
                    # A copy, so that what waits in the transport does not keep the whole.
                    await send(
                        {**message, "body": bytes(body[start:end]), "more_body": not is_last}
                    )
            except TimeoutError:
                raise TooSlow(TOO_SLOW) from None

    return sent
