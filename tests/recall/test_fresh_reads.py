"""What memory answers misses no write that was acknowledged before, whoever has made it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from ..support.another import another
from ..support.fast_reads import Counted, both, counted, held
from ..support.process import run
from ..support.service import PLAIN, serving

__all__ = ["counted"]

CONTEXT, SEARCH = "/context?project=heron&query=zebra&limit=40", "/search?project=heron&q=zebra"


@pytest.mark.slow
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
    """Readers that never pause; another program and the service itself save by turns."""
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

    with serving(path) as service, another(path) as other:
        acknowledged.append(int(str(service.save("zebra", project="heron", title="0")["id"])))
        held(service, counted, SEARCH)
        with ThreadPoolExecutor(2) as threads:
            readers = [threads.submit(read, it) for it in ("", "+zebra")]
            try:
                for number in range(saves):
                    fields = {"project": "heron", "title": f"t{number}"}
                    if number % 8 == 7:
                        acknowledged.append(other.save("zebra", **fields).id)
                    else:
                        acknowledged.append(int(str(service.save("zebra", **fields)["id"])))
            finally:
                is_over.set()
            assert all(it.result() > 0 for it in readers)
    assert counted.answered > 0
