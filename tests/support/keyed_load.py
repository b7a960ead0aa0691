"""Writers that each send a request again, under its key, until it is acknowledged."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from .openwop_hosts import H
from .process import DEADLINE
from .service import PLAIN, observation

WRITERS = 16
PAUSE = 0.02  # seconds, between two tries


@dataclass(frozen=True, slots=True)
class Answer:
    """A refusal as it was answered."""

    status: int
    retry_after: str | None
    text: str


class KeyedLoad:
    """Writers without pause over several services: saves, and puts of hosts, each under a key."""

    def __init__(self, urls: Sequence[str], *, about: str = "save", writers: int = WRITERS) -> None:
        self._urls = [*urls]
        self._about = about
        self._progress = threading.Condition()
        self._is_over = threading.Event()
        self._numbers = itertools.count()
        self._writers = [
            threading.Thread(target=self._write, args=(number,), daemon=True)
            for number in range(writers)
        ]
        self._is_given_up = False
        self.acknowledged: list[str] = []
        self.times: list[float] = []  # of acknowledgements, by the monotonic clock
        self.refusals: list[Answer] = []
        self.unanswered = 0

    def start(self) -> "KeyedLoad":
        for writer in self._writers:
            writer.start()
        return self

    def reach(self, count: int) -> None:
        """Wait until so many more requests are acknowledged."""
        with self._progress:
            wanted = len(self.acknowledged) + count
            assert self._progress.wait_for(lambda: len(self.acknowledged) >= wanted, DEADLINE)

    def use(self, url: str) -> None:
        """Ask this service, too, from now on."""
        self._urls.append(url)

    def end(self) -> None:
        """Let each writer end when its request is acknowledged."""
        self._is_over.set()
        for writer in self._writers:
            writer.join(DEADLINE)
            assert not writer.is_alive()

    def give_up(self) -> None:
        """End, whether it is acknowledged or not."""
        self._is_given_up = True
        self.end()

    def gap_from(self, moment: float) -> float:
        """The longest time from then on in which nothing was acknowledged, in seconds."""
        times = [moment, *(it for it in self.times if it > moment)]
        return max(b - a for a, b in itertools.pairwise(times))

    @property
    def statuses(self) -> Counter[int]:
        return Counter(it.status for it in self.refusals)

    def _write(self, number: int) -> None:
        clients = dict[str, httpx.Client]()
        for turn in itertools.count(number):
            if self._is_over.is_set():
                break
            with self._progress:
                content = f"What {self._about} {next(self._numbers)} has learned"
            for again in itertools.count(turn):
                url = self._urls[again % len(self._urls)]
                if url not in clients:
                    clients[url] = httpx.Client(base_url=url, timeout=DEADLINE, verify=PLAIN)
                if self._acknowledged(clients[url], number, content) or self._is_given_up:
                    break
                time.sleep(PAUSE)
        for client in clients.values():
            client.close()

    def _acknowledged(self, http: httpx.Client, number: int, content: str) -> bool:
        headers = {"Idempotency-Key": content.replace(" ", "-")}
        if number % 4:
            fields = {"session_id": f"s{number}", "project": f"p{number % 4}"}
            path, body = "/observations", observation(content, **fields)
        else:
            path, body = f"{H}/memory", {"memoryRef": f"mem://{number}", "content": content}
        try:
            answer = http.post(path, json=body, headers=headers)
        except httpx.TransportError:
            with self._progress:
                self.unanswered += 1
            return False
        with self._progress:
            if answer.status_code in (200, 201):
                self.acknowledged.append(content)
                self.times.append(time.monotonic())
            else:
                again = answer.headers.get("retry-after")
                self.refusals.append(Answer(answer.status_code, again, answer.text))
            self._progress.notify_all()
        return answer.status_code in (200, 201)
