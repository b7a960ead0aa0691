"""What an import refuses, it names by its place, and nothing of it is stored."""

from collections.abc import Iterator

import pytest

from .service import Service, observation, serving


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service") / "memory.db") as running:
        yield running


def is_empty(service: Service) -> bool:
    export = service.http.get("/export").json()
    return not export["sessions"] and not export["observations"]


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"title": None}, "observations[3].title is required"),
        ({"project": " "}, "observations[3].project is required"),
        ({"content": "x" * 50_001}, "observations[3].content exceeds 50000 chars"),
        ({"created_at": "soon"}, "observations[3].created_at is no RFC 3339 time"),
        ({"uid": "me"}, "observations[3].uid is no UUID"),
        ({"tags": ["x"] * 21}, "observations[3].tags exceed 20 items"),
        ({"revision_count": -1}, "observations[3].revision_count"),
        ({"revision_count": 1.5}, "observations[3].revision_count"),
    ],
)
def test_one_bad_row_fails_the_import_and_is_named(
    service: Service, fault: dict[str, object], sentence: str
) -> None:
    rows = [observation(f"Row {number}.") for number in range(4)]
    rows[3] |= fault

    answer = service.http.post(
        "/import", json={"sessions": [{"id": "s2", "project": "p"}], "observations": rows}
    )

    assert answer.status_code == 400
    assert answer.json()["error"].startswith(f"validation failed: {sentence}")
    assert is_empty(service)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "invalid JSON: the body is empty."),
        (b'{"observations": {}}', "observations must be a list."),
        (b'{"sessions": "x"}', "sessions must be a list."),
        (b'{"observations": [1]}', "validation failed: observations[0] must be an object"),
        (b'{"sessions": [null]}', "validation failed: sessions[0] must be an object"),
        (b'{"sessions": [{"id": "s2", "project": "p"}]', "invalid JSON: "),
        (b'{"sessions": [{"id": "s2", "project": "p"}], "observations": [{]}', "invalid JSON: "),
    ],
)
def test_a_document_that_is_none_is_refused_whole(
    service: Service, body: bytes, sentence: str
) -> None:
    answer = service.http.post("/import", content=body)

    assert answer.status_code == 400
    assert answer.json()["error"].startswith(sentence)
    assert is_empty(service)


@pytest.mark.parametrize(
    "body", [b"{}", b'{"sessions": null, "observations": null, "prompts": [[]]}']
)
def test_a_document_with_nothing_in_it_adds_nothing(service: Service, body: bytes) -> None:
    answer = service.http.post("/import", content=body)

    assert answer.json() == {"imported_sessions": 0, "imported_observations": 0}


def test_a_name_that_grows_when_it_is_folded_is_held_to_the_limit(service: Service) -> None:
    save = observation("a name", project="İ" * 101)

    answer = service.http.post("/observations", json=save)

    assert answer.status_code == 400
    assert answer.json() == {"error": "validation failed: project exceeds 200 chars"}
