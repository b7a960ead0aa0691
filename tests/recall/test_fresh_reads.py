"""What memory answers misses no write that was acknowledged before, whoever has made it."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..support.fast_reads import Counted, both, counted, held
from ..support.process import run
from ..support.second_process import SecondProcess, second_process
from ..support.service import PLAIN, Service, observation, serving

__all__ = ["counted"]

CONTEXT, SEARCH = "/context?project=heron&query=zebra&limit=40", "/search?project=heron&q=zebra"
SEED = 11


class Writers:
    """A service and another process on its file, each of which writes; and what is there now."""

    def __init__(self, service: Service, second: SecondProcess, seed: int) -> None:
        self._service, self._second = service, second
        self.chance = random.Random(seed)  # noqa: S311 - the same each time
        self._numbers = count()
        self.live: dict[int, str] = {}  # a word that no other memory has, by memory
        self.gone: set[str] = set()
        self._older: dict[int, tuple[int, str]] = {}  # what a memory supersedes, which it hides
        self._own: set[int] = set()  # those of the project alone, which one of it may supersede

    def write(self) -> str:
        """What one of them does; it is acknowledged."""
        is_second = self.chance.random() < 0.5
        deeds: list[Callable[[bool], None]] = [self.save, self.save, self.save]
        if self.live:
            deeds += [self.update, self.delete, self.erase]
        if self._own & self.live.keys():
            deeds.append(self.supersede)
        deed = self.chance.choice(deeds)
        deed(is_second)
        return f"{deed.__name__} {is_second}"

    def save(self, is_second: bool) -> None:
        self._saved(is_second, scope=self.chance.choice(["project", "project", "global"]))

    def supersede(self, is_second: bool) -> None:
        older = self.chance.choice(sorted(self._own & self.live.keys()))
        newer = self._saved(is_second, supersedes=[older])
        self._older[newer] = older, self.live.pop(older)

    def update(self, is_second: bool) -> None:
        memory, word = self._any(), self._word()
        content = f"zebra {word}"
        if is_second:
            assert self._second("update", memory, content=content) is not None
        else:
            path = f"/observations/{memory}"
            self._service.http.patch(path, json={"content": content}).raise_for_status()
        self._end(memory)
        self.live[memory] = word

    def delete(self, is_second: bool) -> None:
        self._removed(is_second, is_hard=False)

    def erase(self, is_second: bool) -> None:
        self._removed(is_second, is_hard=True)

    def assert_seen(self, deed: str) -> None:
        """The first answers since hold all of that, and nothing else."""
        words = list(self.live.values())
        for path in (CONTEXT, f"{SEARCH}&limit=99"):
            answer = self._service.http.get(path)
            assert all(it in answer.text for it in words), deed
            assert not any(it in answer.text for it in self.gone), deed

    def _removed(self, is_second: bool, *, is_hard: bool) -> None:
        memory = self._any()
        if is_second:
            self._second("delete", memory, hard=is_hard)
        else:
            path = f"/observations/{memory}?hard={is_hard}".lower()
            self._service.http.delete(path).raise_for_status()
        self._end(memory)
        if memory in self._older:
            older, word = self._older.pop(memory)
            self.live[older] = word

    def _saved(self, is_second: bool, **fields: Any) -> int:
        word = self._word()
        body = observation(f"zebra {word}", project="heron", title="t") | fields
        saved = self._second("save", **body) if is_second else None
        memory = int(str(saved.id if saved else self._service.save(**body)["id"]))  # type: ignore[arg-type]
        self.live[memory] = word
        if fields.get("scope") != "global":
            self._own.add(memory)
        return memory

    def _any(self) -> int:
        return self.chance.choice(list(self.live))

    def _end(self, memory: int) -> None:
        self.gone.add(self.live.pop(memory))

    def _word(self) -> str:
        return f"w{next(self._numbers):03}x"


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [15, pytest.param(300, marks=pytest.mark.heavy)])
def test_the_next_answer_holds_what_another_process_has_written(
    path: Path, counted: Counted, rounds: int
) -> None:
    with serving(path) as service, second_process(path) as second:
        writers = Writers(service, second, SEED + rounds)
        service.save("zebra", project="heron", title="stays")  # memory answers for such projects
        for _ in range(rounds):
            held(service, counted, CONTEXT)  # so that there is something to be forgotten
            held(service, counted, SEARCH)
            for _ in range(writers.chance.choice([1, 2, 3])):
                deed = writers.write()
            writers.assert_seen(deed)
            for each in (CONTEXT, SEARCH):
                one, other = both(service, each)
                assert one == other, deed
            if len(writers.live) > 15:
                writers.erase(True)


def test_the_next_answer_is_of_what_a_command_has_made_of_the_projects(
    tmp_path: Path, counted: Counted
) -> None:
    path = tmp_path / "memory.db"
    elsewhere = CONTEXT.replace("heron", "stork")

    def command(*arguments: str) -> None:
        done = run(*arguments, "--db", str(path), "--json")
        assert done.returncode == 0, done.stderr

    def titles(path: str) -> set[str]:
        one, other = both(service, path)
        assert one == other
        answer = service.http.get(path).json()
        return {it["title"] for it in answer["recent_observations"]}

    with serving(path) as service:
        service.save("zebra one", project="heron", title="one")
        service.save("zebra two", project="stork", title="two", session_id="s2")
        held(service, counted, CONTEXT)
        command("save", "three", "zebra three", "--project", "heron", "--pinned")
        assert titles(CONTEXT) == {"one", "three"}
        for each in (CONTEXT, elsewhere):
            held(service, counted, each)
        command("projects", "merge", "heron", "stork", "--yes")
        assert (titles(CONTEXT), titles(elsewhere)) == (set(), {"one", "two", "three"})
        held(service, counted, elsewhere)
        command("projects", "rename", "stork", "heron")
        assert (titles(elsewhere), titles(CONTEXT)) == (set(), {"one", "two", "three"})
        held(service, counted, CONTEXT)
        command("projects", "erase", "heron", "--yes")
        assert titles(CONTEXT) == set()


@pytest.mark.slow
@pytest.mark.parametrize("saves", [40, pytest.param(600, marks=pytest.mark.heavy)])
def test_no_request_that_began_after_a_save_misses_it_while_many_ask(
    tmp_path: Path, counted: Counted, saves: int
) -> None:
    """Readers that never pause; a process and the service itself save by turns."""
    path, acknowledged, is_over = tmp_path / "memory.db", list[int](), threading.Event()

    def read(which: str) -> int:
        asked = 0
        with httpx.Client(base_url=service.url, timeout=30, verify=PLAIN) as http:
            while not is_over.is_set():
                before = set(acknowledged)
                hits = http.get(f"{SEARCH}{which}&limit=1000").json()
                assert before <= {it["id"] for it in hits}
                asked += 1
        return asked

    with serving(path) as service, second_process(path) as second:
        acknowledged.append(int(str(service.save("zebra", project="heron", title="0")["id"])))
        held(service, counted, SEARCH)
        with ThreadPoolExecutor(2) as threads:
            readers = [threads.submit(read, it) for it in ("", "+zebra")]
            try:
                for number in range(saves):
                    body = observation("zebra", project="heron", title=f"t{number}")
                    if number % 8 == 7:
                        acknowledged.append(second("save", **body).id)
                    else:
                        acknowledged.append(int(str(service.save(**body)["id"])))  # type: ignore[arg-type]
            finally:
                is_over.set()
            assert all(it.result() > 0 for it in readers)
    assert counted.answered > 0
