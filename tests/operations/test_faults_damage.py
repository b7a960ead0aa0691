"""Faults: a page of the index is damaged under load, and two pods start on one volume."""

import threading
import time
from pathlib import Path

import httpx
import pytest

from ..sqlite.test_hand_over import second
from ..support.database import assert_index_is_whole
from ..support.files import assert_sound
from ..support.harming import harmed, page_of
from ..support.losses import Losses
from ..support.process import Load, served, stored, until
from ..support.service import PLAIN, observation

pytestmark = pytest.mark.slow


class Agent:
    """One who asks for the context without pause."""

    def __init__(self, url: str) -> None:
        self.statuses: set[int] = set()
        self._url = url
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> "Agent":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join(30)

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=30, verify=PLAIN) as http:
            while not self._enough.is_set():
                asked = {"query": "what has save 7 learned", "project": "demo"}
                self.statuses.add(http.get("/context", params=asked).status_code)


def test_a_damaged_page_of_the_index_under_load_loses_nothing(path: Path, lost: Losses) -> None:
    with served(path) as (program, http), Agent(str(http.base_url)) as agent:
        load = Load(str(http.base_url), saves=800).start()
        load.reach(300)
        harmed(path, page_of(path, "memories_fts_0_idx"))
        began = time.monotonic()
        program.line("index was damaged and has been rebuilt")
        mended = time.monotonic() - began
        load.join()
        until(lambda: http.get("/health/ready").status_code == 200)
        again = http.post("/observations", json=observation("zebra"))
        found = http.get("/search", params={"q": "zebra"}).json()

    assert (again.status_code, found[0]["content"]) == (201, "zebra")
    assert agent.statuses == {200}
    assert set(load.refused.values()) <= {503}
    assert load.unanswered == set()
    assert_index_is_whole(path)
    lost(
        "a damaged page of the index, under load",
        acknowledged=load.acknowledged.keys(),
        found=stored(path),
        remark=f"mended after {mended:.1f} s, {len(load.refused)} saves refused meanwhile",
    )
    with served(path):
        pass  # which writes the file anew
    assert_sound(path, live=len(load.acknowledged) + 1)


def test_two_pods_on_one_volume_serve_one_after_the_other(path: Path, lost: Losses) -> None:
    with (
        second(path, MEMORY_DRAIN="0") as (one, at_one),
        second(path, MEMORY_DRAIN="0") as (other, at_other),
    ):
        pods = {one: at_one, other: at_other}
        (first,) = until(lambda: [pod for pod in pods if "serving on" in pod.output])
        (last,) = (pod for pod in pods if pod is not first)
        load = Load(str(pods[first].base_url)).start()
        load.reach(300)
        assert "waiting for it to stop" in last.output
        assert pods[last].get("/observations/1").status_code == 503
        first.end()
        began = time.monotonic()
        last.line('"serving on http')
        lasted = time.monotonic() - began
        load.join()
        again = pods[last].post("/observations", json=observation("by the second"))
        kept = stored(path)

    assert again.status_code == 201
    lost(
        "two pods start on one volume, the first is killed",
        acknowledged={*load.acknowledged, "by the second"},
        found=kept,
        remark=f"the second served {lasted:.1f} s later",
    )
    assert_sound(path, live=len(kept))
