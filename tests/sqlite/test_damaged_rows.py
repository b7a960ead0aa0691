"""One value of a row is damaged, of any column of any table: nothing else is read in its place."""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import groupby, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory.memory.damage import COLUMNS, DERIVED, Finding, Status
from agentops_memory.operations.doctor import DoctorContext, apply_fixes, findings_of
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.migrate import apply_migrations

from ..operations.test_doctor import patient
from ..support.answers import TASKS, Known, Writer, every_write
from ..support.anthropic_sdk import STORES
from ..support.damaged_values import LEFT, NO_TEXT, damage, is_of_a_restriction
from ..support.process import until
from ..support.questions import changes, questions
from ..support.service import START, Service, serving
from ..support.stores import at, entry, ok, store

AT_ONCE = 7  # damages of different tables: each start asks every route
GOING = {"met_tags", "pending_archives", "transcripts"}  # by themselves
ADA = {"X-Agent-ID": "ada"}
OWN = ("/health", "/metrics", "/.well-known")  # what is not told of rows
IDS = {"id", "uid", "runId", "proposalId", "commitmentId", "name", "memoryRef"}
MOVING = {"next_page", "next_cursor", "cursor", "next", "nextCursor", "duplicateOf"}  # to another

FLIPPED = "char((unicode(VALUE) | 1) - (unicode(VALUE) & 1)) || substr(VALUE, 2)"  # a bit
WRONG: dict[str, tuple[str, ...]] = {
    "TEXT": (NO_TEXT, "x'00ff'", "5"), "INTEGER": ("1 << 62", "-(1 << 62)", "'x'", "1.5", "x'ff'"),
    "BLOB": ("'x'", "7"), "REAL": ("'x'", "x'ff'"),
}  # fmt: skip
"""What a value of each type becomes, and cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What one value of a column becomes."""

    table: str
    column: str
    value: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} = {self.value}"


def _damages() -> list[Damage]:
    """All that can be done to one value of every column of every table."""
    with closing(connect(Path(":memory:"))) as database:
        apply_migrations(database)
        columns = database.execute(
            """SELECT t.name, c.name, c.type, c.type = 'INTEGER' AND c.pk
                      AND NOT EXISTS (SELECT 1 FROM pragma_table_info(t.name) WHERE pk = 2)
                 FROM pragma_table_list t, pragma_table_info(t.name) c
                WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"""
        ).fetchall()
    found = []
    for table, column, type_, is_rowid in columns:
        if table not in DERIVED:
            values = WRONG[type_][: 2 if is_rowid else None]  # no file has another type there
            if column == "fingerprint":
                values = values[2:]
            if type_ == "TEXT" and f"{table}.{column}" in COLUMNS:
                values += (FLIPPED, "'{'")
            found += [Damage(table=table, column=column, value=it) for it in values]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A sound database, how what it holds is addressed, and what is answered of it."""

    path: Path
    known: Known
    statuses: dict[str, int]
    texts: frozenset[tuple[str, str, str]]  # each as a member of which thing


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = tmp_path_factory.mktemp("made") / "memory.db"
    with serving(path) as service:
        known = every_write(Writer(service.http))
    with closing(connect(path)) as database:
        database.executescript(LEFT)
    copy = _copied(path, path.with_name("asked.db"))
    with serving(copy) as service:
        answers = [*_asked(service, known)]
    return Made(
        path=path,
        known=known,
        statuses={str(it.url.raw_path): it.status_code for it in answers},
        texts=frozenset(
            known
            for it in answers
            for of, name, text in _texts_of(it)
            for known in ((of, name, text), ("", "", text))
        ),
    )


@pytest.fixture
def path(made: Made, tmp_path: Path) -> Path:
    return _copied(made.path, tmp_path / "memory.db")


def _cases() -> Iterator[Any]:
    """All that there is, some at a time: first one of each table, each time another column's."""
    of_tables = [[*of] for _, of in groupby(_damages(), attrgetter("table"))]
    for number, of in enumerate(of_tables):
        first = 5 * number % len(of)
        of[:] = of[first:] + of[:first]
    for number, turn in enumerate(zip_longest(*of_tables)):
        each = [*filter(None, turn)]
        for start in range(0, len(each), AT_ONCE):
            some = each[start : start + AT_ONCE]
            mark = pytest.mark.heavy if number % 40 or start else pytest.mark.slow
            marks = (mark,) if number or start else ()
            yield pytest.param(some, id=" and ".join(map(str, some)), marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [*_cases()])
def test_a_damaged_row_is_not_served_is_named_and_can_be_moved_away(
    damaged: Sequence[Damage], path: Path, made: Made
) -> None:
    named = [f"{it.table} {damage(path, it.table, it.column, it.value)}: " for it in damaged]
    (found,) = _of_values(path)
    assert [it for it in named if it not in found.sentence] == []
    asked_copy = _copied(path, path.with_name("asked.db"))

    with serving(asked_copy, MEMORY_SWEEP_EVERY="5ms") as service:
        answers = [*_asked(service, made.known)]
        assert _failures(answers) == []
        assert [it for answer in answers for it in _others(answer, made)] == []
        if not GOING.issuperset(it.table for it in damaged):
            assert until(lambda: _first(service).startswith(tuple(named)))

    (done,) = apply_fixes([found])

    assert done.status is Status.OK, done.sentence
    moved = {json.loads(line)["table"] for line in _quarantined(path)}
    assert moved >= {it.table for it in damaged if it.column not in {"area", "partition"}}
    assert _of_values(path)[0].status is Status.OK
    with serving(path) as service:
        assert [it for it in _asked(service, made.known) if it.status_code >= 500] == []
        assert _failures(_changed(service, made.known)) == []


def _failures(answers: Iterable[httpx.Response]) -> list[str]:
    """What was answered with a fault of the program, but for what names the row that it is for."""
    return [
        f"{it.request.method} {it.request.url.raw_path.decode()}: {it.status_code} {it.text}"
        for it in answers
        if it.status_code >= 500 and not is_of_a_restriction(it)
    ]


DESCRIPTIONS = {"/openapi.json", "/docs"}  # of the program: nothing that is stored is in them


def _asked(service: Service, known: Known) -> Iterator[httpx.Response]:
    for question in questions(known):
        if question not in DESCRIPTIONS:  # each takes longer than all others together
            yield service.http.get(question, headers=ADA)


def _changed(service: Service, known: Known) -> Iterator[httpx.Response]:
    for method, path, body, key in changes(known):
        headers = ADA | ({"Idempotency-Key": key} if key else {})
        if method == "PATCH" and path.startswith(TASKS):
            headers["If-Match"] = str(_version(service.http, path))
        yield service.http.request(method, path, json=body, headers=headers)


def _version(http: httpx.Client, task: str) -> int:
    """The version of a task, or any if it is not there."""
    return int(http.get(task, headers=ADA).json().get("version", 1))


def _others(answer: httpx.Response, made: Made) -> Iterator[tuple[str, str, str]]:
    """What it says that no sound answer does of the same thing; all, if that was refused before."""
    if answer.is_success and not answer.url.path.startswith(OWN):
        was_refused = made.statuses[str(answer.url.raw_path)] >= 400
        # A memory whose number is damaged is at its old one no more.
        known = made.texts | {(str(it), "reason", "unknown") for it in made.known.memories}
        yield from (it for it in _texts_of(answer) if was_refused or it not in known)


def _texts_of(answer: httpx.Response) -> Iterator[tuple[str, str, str]]:
    if "json" in answer.headers.get("content-type", ""):
        yield from _leaves(answer.json())


def _leaves(value: Any, of: str = "", name: str = "") -> Iterator[tuple[str, str, str]]:
    """Each text, with the id of what it is said of, if it has one, and the name of its member."""
    if isinstance(value, dict):
        ids = (str(value[it]) for it in value if it in IDS)
        own = next(ids, of)
        for member, inner in value.items():
            if member not in MOVING:
                yield from _leaves(inner, own, member)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, of, name)
    elif isinstance(value, str):
        yield of, name if of else "", value


def _copied(path: Path, copy: Path) -> Path:
    shutil.copy(path, copy)
    shutil.copy(f"{path}.seal", f"{copy}.seal")
    return copy


def patient_of(path: Path, *, thorough: bool = False) -> DoctorContext:
    return replace(patient(path, thorough=thorough), now=START + timedelta(hours=1))


def _of_values(path: Path) -> list[Finding]:
    return [it for it in findings_of(patient_of(path)) if it.code == "values"]


def _quarantined(path: Path) -> list[str]:
    return path.with_name(f"{path.name}.quarantine").read_text().splitlines()


def _first(service: Service) -> str:
    """The row that readiness names."""
    checks = service.http.get("/health/ready").json()["checks"]
    return str(checks["database"].get("detail", "")).rpartition("damaged, first ")[2]


@pytest.mark.slow
def test_a_list_goes_on_behind_a_damaged_row(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with serving(path) as service:
        home = store(service.http)
        written = [entry(service.http, home, f"p{number}")["id"] for number in range(9)]
    with closing(connect(path)) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute("UPDATE memories SET extras = '[' WHERE id BETWEEN 2 AND 6")
        database.commit()

    with serving(path) as service:
        (theirs,) = ok(service.http.get(STORES))["data"]
        for depth in ("0", "1"):
            memories, page = list[str](), dict[str, str]()
            while True:
                asked_for = {"depth": depth, "limit": "3", **page}
                answer = ok(service.http.get(f"{STORES}/{theirs['id']}/memories", params=asked_for))
                memories += [it["path"] for it in answer["data"]]
                if not answer["next_page"]:
                    break
                page = {"page": answer["next_page"]}
            assert memories == ["/p0", "/p6", "/p7", "/p8"]
        found, after = list[str](), dict[str, str]()
        while True:
            answer = ok(service.http.get(at(home, "memories"), params={"limit": "3", **after}))
            found += [it["id"] for it in answer["data"]]
            if not answer["has_more"]:
                break
            after = {"after_id": answer["last_id"]}
    assert found == [it for it in written[::-1] if it not in written[1:6]]


def test_what_is_made_of_a_row_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with serving(path, MEMORY_SWEEP_EVERY="5ms") as service, closing(connect(path)) as database:
        service.save("apple")
        assert service.http.patch("/observations/1", json={"content": "plum"}).is_success
        service.save("pear")
        stems = "SELECT count(*) FROM memory_stems"
        until(lambda: database.execute(stems).fetchone() == (2,))
    damage(path, "memories", "tags", "'['")

    (done,) = apply_fixes(_of_values(path))

    assert done.status is Status.OK, done.sentence
    assert [it for it in findings_of(patient_of(path)) if it.status is Status.FAILED] == []
    assert {json.loads(line)["table"] for line in _quarantined(path)} == {"memories", "revisions"}
