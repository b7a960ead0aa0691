"""What an import refuses, it names by its place, and nothing of it is stored."""

import json
import re

from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, lasting_with, observation

service = lasting_with()

BOTH = "/import", "/import?dry_run=true"


def assert_refused(service: Service, body: bytes, *sentences: str) -> None:
    """Both by an import and by its plan, and nothing of it is stored."""
    for path in BOTH:
        answer = service.http.post(path, content=body)
        assert answer.status_code == 400
        for sentence in sentences:
            assert sentence in answer.json()["error"]
        assert "example.com" not in answer.text
    export = service.http.get("/export").json()
    assert (export["sessions"], export["observations"]) == ([], [])


ROWS = [observation(f"Row {number}.") for number in range(3)]


def faulty(**fields: object) -> dict[str, object]:
    return observation("Row 3.") | fields


SESSIONS = [{"id": "s2", "project": "p"}]


@for_each(
    "body, sentence",
    [
        *[
            (json.dumps({"sessions": SESSIONS, "observations": [*ROWS, fault]}).encode(),
             f"validation failed: observations[3].{sentence}")
            for fault, sentence in (
                (faulty(title=None), "title is required"),
                (faulty(project=" "), "project is required"),
                (faulty(content="x" * 50_001), "content exceeds 50000 chars"),
                (faulty(created_at="soon"), "created_at is not an RFC 3339 time"),
                (faulty(uid="me"), "uid is not a UUID"),
                (faulty(tags=["x"] * 21), "tags exceed 20 items"),
                (faulty(revision_count=-1), "revision_count"),
                (faulty(revision_count=1.5), "revision_count"),
            )
        ],
        (b"", "invalid JSON: the body is empty."),
        (b'{"observations": {}}', "observations must be a list."),
        (b'{"sessions": "x"}', "sessions must be a list."),
        (b'{"observations": [1]}', "validation failed: observations[0] must be an object"),
        (b'{"sessions": [null]}', "validation failed: sessions[0] must be an object"),
        (b'{"sessions": [{"id": "s2", "project": "p"}]', "invalid JSON: "),
        (b'{"sessions": [{"id": "s2", "project": "p"}], "observations": [{]}', "invalid JSON: "),
    ],
)  # fmt: skip
def test_one_bad_row_or_a_document_that_is_none_is_refused_whole_and_named(
    service: Service, body: bytes, sentence: str
) -> None:
    assert_refused(service, body, sentence)


@for_each(
    "body",
    [
        b"{}",
        b'{"sessions": null, "observations": null, "prompts": [[]]}',
        b'{"exported_at": "2026-04-12T10:00:00Z", "sessions": [], "observations": []}',
        b'{"exported_at": "2026-04-12T10:00:00Z", "sessions": null, "observations": null}',
        b'{"results": [1], "observations": []}',
    ],
)
def test_an_export_with_nothing_in_it_adds_nothing(service: Service, body: bytes) -> None:
    answer = service.http.post("/import", content=body)

    assert answer.json() == {"imported_sessions": 0, "imported_observations": 0}


@for_each(
    "body, sentence",
    [
        (b'{"a": 1}', "this one has a."),
        (b'{"exported_at": "2026-04-12T10:00:00Z"}', "this one has exported_at."),
        (b'{"results": [{"memory": "x"}, {"memory": "y"}]}', "a list of memories from mem0"),
        (b'{"version": "1", "prompts": []}', "an export of Engram: `agentops-memory import` reads"),
        (b'{"a": 1, "b": [2, 3], "c": {}, "d": 0, "e": 0, "f": 0}', "has a, b, c, d, e, 1 more."),
        (b'{"me@example.com": 1, "b": 2}', "this one has b, 1 more."),
        (b'{"": 1, "\\u202e": 2}', "this one has 2 members."),
        (b'{"": 1}', "this one has 1 member."),
        (b"{%s}" % b", ".join(b'"k%d": 0' % n for n in range(9_999)), "k4, 9,994 more."),
        (b"[]", "this is a list, which no importer reads."),
        (b'  [{"id": 1}]', "this is a list, which no importer reads."), (b"null", "this is null."),
        (b'"text"', "this is a string."), (b"-1.5", "this is a number."),
        (b"true", "this is a boolean."),
        (b'{"id": 1}\n{"id": 2}\n', "this is JSON lines, which no importer reads."),
        (b"SQLite format 3\0\x10", "this is a SQLite database: `agentops-memory export --db FILE`"),
        (b"PK\x03\x04\x14", "this is a ZIP file: `agentops-memory restore` reads"),
        (b"\x1f\x8b\x08", "this is compressed by gzip: decompress it first."),
    ],
)  # fmt: skip
@requirement("agentops:import:no-export")
def test_what_is_no_export_is_refused_and_said_to_be_what_it_is(
    service: Service, body: bytes, sentence: str
) -> None:
    assert_refused(service, body, "an object with sessions and observations is expected", sentence)


def test_a_name_that_grows_when_it_is_folded_is_held_to_the_limit(service: Service) -> None:
    save = observation("a name", project="İ" * 101)

    answer = service.http.post("/observations", json=save)

    assert answer.status_code == 400
    assert answer.json() == {"error": "validation failed: project exceeds 200 chars"}


def test_where_a_long_document_is_no_json_is_told_from_its_beginning(service: Service) -> None:
    whole = json.dumps({"observations": [observation(f"Row {number}.") for number in range(4000)]})
    for path in BOTH:
        answer = service.http.post(path, content=f"{whole[:-40]}\x00")
        assert answer.status_code == 400
        character = int(re.findall(r"at character (\d+)\.", answer.json()["error"])[0])
        assert character in range(len(whole) - 40 - len(whole) // 4000, len(whole) - 38)
