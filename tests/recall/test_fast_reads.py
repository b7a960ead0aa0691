"""What memory answers is, byte for byte, what the long way answers, and misses no write."""

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from agentops_memory.errors import Unavailable
from agentops_memory.recall import cache
from agentops_memory.recall.area import Area
from agentops_memory.recall.cache import DatabaseIndex, NewMemory
from agentops_memory.recall.cached_reads import CachedReads
from agentops_memory.recall.stems import Vocabulary
from agentops_memory.sqlite import areas
from agentops_memory.telemetry import Telemetry

from ..support.another import another
from ..support.callers import made_key
from ..support.fast_reads import LONG_WAY, Counted, both, counted, held, without_date
from ..support.files import imported, put_in_index
from ..support.histories import KEYS, History, Question
from ..support.otlp import http_collector
from ..support.process import until
from ..support.raw import wire
from ..support.service import PLAIN, Clock, Service, observation, serving
from .test_index_cache import large_areas

__all__ = ["counted"]

CONTEXT = "/context?project=heron&query=rollback"


def test_a_word_counts_once_among_the_most_that_are_looked_for(
    tmp_path: Path, counted: Counted
) -> None:
    letters = "abcdefgh"
    words = [f"x{one}{other}" for one in letters for other in letters][:63]
    repeated = [f"{it}," for it in words[:6]]
    prompt = " ".join([*words, *repeated, "zebra"])
    path = f"/context?{urlencode({'project': 'demo', 'limit': 2, 'query': prompt})}"
    with serving(tmp_path / "memory.db") as service:
        for text in ("zebra", words[0], "one of others", "another of them"):
            service.save(text)
        answer = held(service, counted, path)
        found = {it["content"] for it in answer.json()["recent_observations"]}
        assert found == {"zebra", words[0]}
        assert len({*both(service, path)}) == 1


@pytest.fixture
def heron(counted: Counted, service: Service) -> Service:  # counted from the start
    """A service that has its project in memory."""
    service.save("rollback worker", project="heron")
    held(service, counted, CONTEXT)
    return service


def test_a_lone_accent_leaves_memory_with_its_text_and_the_others_stay(
    counted: Counted, tmp_path: Path
) -> None:
    with serving(tmp_path / "memory.db") as service:  # its stem is empty
        service.save("the rollback of the apple\u00b4 rule", project="heron")
        service.save("rollback worker", project="heron")
        held(service, counted, CONTEXT)
        assert service.http.delete("/observations/1").status_code == 204
        answer = service.http.get(CONTEXT).json()
    assert [it["content"] for it in answer["recent_observations"]] == ["rollback worker"]


def test_what_is_no_plain_read_goes_the_long_way(heron: Service) -> None:
    for path in (
        f"{CONTEXT}&query=worker", f"{CONTEXT}&explain=true", f"{CONTEXT}&limit=1000",
        f"{CONTEXT}&limit=no", "/context?project=heron&q=rollback",
        "/context?query=rollback", "/context?project=heron", "/search?project=heron&q=a/b",
        "/search?project=none&q=rollback", "/search?project=heron&q=%FF%00",
    ):  # fmt: skip
        one, other = both(heron, path)
        assert one == other, path
    # What no page and no other name may read is refused in front, too.
    assert heron.http.get(CONTEXT, headers={"Origin": "null"}).status_code == 403
    for path in (CONTEXT, "/health"):
        one, other = both(heron, path, {"Host": "evil.example"})
        assert one == other
        assert one.startswith(b"403")


MANY = " ".join(f"x{one}{other}" for one in "abcdefgh" for other in "abcdefgh")


@pytest.mark.parametrize(
    "prompt", ["rollback", "What is it? Rollback.", "It was so. The worker", f"{MANY} rollback"]
)
def test_plain_prompts_of_any_shape_find_what_the_long_way_finds(
    heron: Service, counted: Counted, prompt: str
) -> None:
    for text in ("50% of %b and %s, a rollback", "what is it", "xaa"):
        heron.save(text, project="heron")
    for path, name in (("/context", "query"), ("/search", "q")):
        url = f"{path}?{urlencode({'project': 'heron', name: prompt})}"
        held(heron, counted, url)
        one, other = both(heron, url)
        assert one == other


@pytest.mark.parametrize("areas", [large_areas, partial(large_areas, have_numpy=True)])
def test_the_best_of_a_large_project_come_first(
    tmp_path: Path, counted: Counted, areas: Callable[[], AbstractContextManager[None]]
) -> None:
    path = "/context?project=heron&query=rollback+worker&limit=2"
    with areas(), serving(tmp_path / "memory.db") as service:
        for words in range(30, 0, -1):  # later ones are better
            text = f"rollback {'word ' * words}"
            service.save(text, project="heron", session_id=f"s{words}")  # none gains by another
        held(service, counted, path)
        one, other = both(service, path)
    assert one == other
    assert one.count(b"rollback") == 4  # in two titles and contents


def test_a_typo_is_corrected_by_a_word_that_came_after_it_was_asked_for(
    heron: Service, counted: Counted
) -> None:
    def found(word: str) -> bytes:
        path = f"/search?project=heron&q={word}"
        held(heron, counted, path)
        answer, other = both(heron, path)
        assert answer == other
        return answer

    typos = {"flamigo": "flamingo", "noisse": "noise", "kestrl": "kestrels"}
    for typo, word in typos.items():
        assert word.encode() not in found(typo)
        heron.save(word, project="heron")
        assert word.encode() in found(typo)
    for id_, (typo, word) in enumerate(typos.items(), 2):
        heron.http.delete(f"/observations/{id_}", params={"hard": "true"})
        assert word.encode() not in found(typo)
        heron.save(f"another {word}", project="heron")
        assert word.encode() in found(typo)


def test_a_word_is_found_by_its_form_after_another_word_that_this_is_the_stem_of_has_left(
    heron: Service, counted: Counted
) -> None:
    heron.save("the noise", project="heron")
    heron.save("anything", project="stork")
    for project in ("heron", "stork"):
        held(heron, counted, f"/search?project={project}&q=anything")
    brief = heron.save("noisee", project="stork")["id"]  # in the index it is "noise"
    held(heron, counted, "/search?project=stork&q=anything")
    heron.http.delete(f"/observations/{brief}", params={"hard": "true"})

    held(heron, counted, "/search?project=heron&q=noisse")
    answer, other = both(heron, "/search?project=heron&q=noisse")
    assert answer == other
    assert b"the noise" in answer


def test_requests_of_one_connection_are_answered_in_their_order(heron: Service) -> None:
    paths = [CONTEXT, "/stats", CONTEXT, CONTEXT, "/stats", CONTEXT]
    with wire(heron.url) as connection:
        connection.send(*(f"GET {it} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for it in paths))
        told = ["total_observations" in connection.answer().json for _ in paths]
    assert told == [it == "/stats" for it in paths]


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_project_is_loaded_at_once_and_later_the_fuller_memory_is(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MEMORIES_PER_PROMPT", 1)
    monkeypatch.setattr(cache, "MAX_PROMPTS", 60)
    monkeypatch.setattr(areas, "MOST_BEHIND", 10)  # so that no request loads it itself
    with serving(tmp_path / "memory.db", MEMORY_INDEX_CACHE="1MiB") as service:
        projects = [f"heron {it}" for it in range(9)]  # the last is in another part of the index
        contents = [(f"rollback worker {it}", project) for it in range(100) for project in projects]
        imported(service, [observation(it, project=project) for it, project in contents])
        put_in_index(service.path)
        first, last = (f"/context?project={it}&query=rollback" for it in projects[::8])
        service.http.get(first)
        until(lambda: any(isinstance(it, DatabaseIndex) and it.parts for it in gc.get_objects()))
        service.http.get(first)
        assert (counted.declined, counted.answered) == (1, 1)

        held(service, counted, last)
        assert counted.declined >= 15


@pytest.mark.sqlite_files
def test_memory_keeps_its_bound_with_rendered_text_and_still_answers(
    tmp_path: Path, counted: Counted
) -> None:
    most = 1 << 20
    projects = [f"heron {it}" for it in range(24)]
    with serving(tmp_path / "memory.db", MEMORY_INDEX_CACHE=str(most)) as service:
        texts = [f"rollback worker {it} {'long ' * 300}" for it in range(80)]
        shared = [observation(it, project="p", scope="global") for it in texts]
        own = [observation(it, project=project) for project in projects for it in texts]
        imported(service, [*shared, *own])
        every = (it for it in gc.get_objects() if type(it) is cache.IndexCache)
        (memory,) = (it for it in every if it.databases and it.max_bytes == most)
        for limit, project in product((1, 99), projects):  # all are loaded before much is rendered
            service.http.get(f"/search?project={project}&q=rollback&limit={limit}")
            assert memory.size <= most * 1.05
        assert held(service, counted, "/search?project=heron 0&q=rollback&limit=9").json()


def test_erased_words_leave_memory_with_the_commit(tmp_path: Path, counted: Counted) -> None:
    path = "/search?project=heron&q=yggdrasil"
    with serving(tmp_path / "memory.db") as service:
        saved = service.save("yggdrasil worker yggdrasilnoise", project="heron")
        held(service, counted, path)
        held(service, counted, "/search?project=heron&q=yggdrasl")
        service.save("yggdrasil queue", project="heron")  # which waits until it is asked for
        for gone in (saved["id"], int(str(saved["id"])) + 1):
            service.http.delete(f"/observations/{gone}?hard=true").raise_for_status()
        assert not [it for it in _texts() if "yggdrasil" in it]


def _texts() -> Iterator[str]:
    """What is held of words and lines."""
    for it in gc.get_objects():
        if isinstance(it, Vocabulary):
            yield from _strings(it)
        elif isinstance(it, Area):
            yield from (line.decode() for line in (*it.lines.values(), *it.hits.values()))
        elif isinstance(it, NewMemory):
            yield from it.columns


def _strings(held: object) -> Iterator[str]:
    """Of an object of ours, whatever it keeps them in."""
    for it in gc.get_referents(held):
        if isinstance(it, str):
            yield it
        elif isinstance(it, dict | list | tuple | set):
            yield from _strings(it)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [RuntimeError("a bug"), Unavailable("no database")])
def test_what_fails_in_front_is_answered_the_long_way(
    heron: Service, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def failing(*_: object) -> None:
        raise fault

    before = heron.http.get(CONTEXT).content
    monkeypatch.setattr(CachedReads, "context", failing)
    assert heron.http.get(CONTEXT).content == before


def test_a_first_global_memory_of_a_project_comes_before_those_of_others(
    tmp_path: Path, counted: Counted
) -> None:
    path = "/context?project=heron&query=rollback&limit=9"
    with serving(tmp_path / "memory.db") as service:
        service.save("rollback", project="heron")
        service.save("older", project="heron", session_id="s3")
        service.save("elsewhere", project="stork", scope="global", session_id="s2")
        held(service, counted, path)
        service.save("everywhere", project="heron", scope="global")
        held(service, counted, path)
        one, other = both(service, path)
        assert one == other
        places = [one.index(it) for it in (b"everywhere", b"older", b"elsewhere")]
        assert places == sorted(places)


@pytest.mark.slow
def test_a_key_has_as_many_held_reads_as_its_rate(tmp_path: Path, counted: Counted) -> None:
    with serving(tmp_path / "memory.db", MEMORY_RATE_LIMIT="60/h") as service:
        service.save("rollback worker", project="heron")
        statuses = [service.http.get(CONTEXT).status_code for _ in range(80)]
        assert counted.answered > 30
        assert statuses.count(200) == 59  # and the save
        assert set(statuses[59:]) == {429}


SEARCH = "/search?project=heron&q=zebra"


@pytest.mark.slow
def test_no_request_that_began_after_a_save_misses_it_while_many_ask(
    tmp_path: Path, counted: Counted
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
                for number in range(40):
                    fields = {"project": "heron", "title": f"t{number}"}
                    if number % 8 == 7:
                        acknowledged.append(other.save("zebra", **fields).id)
                    else:
                        acknowledged.append(int(str(service.save("zebra", **fields)["id"])))
            finally:
                is_over.set()
            assert all(it.result() > 0 for it in readers)
    assert counted.answered > 0


def asked(service: Service, history: History, question: Question, **more: str) -> bytes:
    key, path = question
    return without_date(service.http.get(path, headers={**history.headers(key), **more}))


@pytest.fixture(params=[nullcontext, large_areas, partial(large_areas, have_numpy=True)])
def ranked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Projects are ranked as small ones are, or as large ones, without NumPy and with it."""
    with request.param():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("ranked")
def test_whole_answers_of_a_history_are_those_of_the_long_way_and_of_the_stored_index(
    tmp_path: Path, counted: Counted
) -> None:
    """Nothing is swept meanwhile: that takes what has expired out of what is weighed."""
    path, clock, steps = tmp_path / "memory.db", Clock(), 120
    keys = {name: made_key(path, *of) for name, of in KEYS.items()}
    history = History(keys, 1)
    with serving(path, clock=clock, MEMORY_SWEEP_EVERY="0") as service:
        history.service = service
        assert_answered_alike(history, service, steps)
        questions = [history.question() for _ in range(40)]
        answers = [asked(service, history, it) for it in questions]
    with serving(path, clock=clock, MEMORY_INDEX_CACHE="0", MEMORY_SWEEP_EVERY="0") as service:
        assert_same(questions, answers, service, history)
    with http_collector() as collector:
        telemetry = Telemetry.started(collector.endpoint, "http/protobuf")
        try:
            with serving(path, clock=clock, MEMORY_SWEEP_EVERY="0", telemetry=telemetry) as service:
                for _ in range(2):  # before memory holds anything, and afterwards
                    assert_same(questions, answers, service, history)
        finally:
            telemetry.stop()
    assert counted.answered > steps // 2


def assert_answered_alike(history: History, service: Service, steps: int) -> None:
    """Memory and the long way answer three questions alike after each step's changes."""
    for step in range(steps):
        for _ in range(history.chance.choice([0, 1, 3])):
            history.change()
        if step % 8 == 7:
            history.change_rarely()
        for _ in range(3):
            question = history.question()
            one = asked(service, history, question)
            assert one == asked(service, history, question, **LONG_WAY), question


def assert_same(
    questions: list[Question], answers: list[bytes], service: Service, history: History
) -> None:
    for question, answer in zip(questions, answers, strict=True):
        assert asked(service, history, question) == answer, question
