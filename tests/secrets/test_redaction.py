"""A secret is neither stored nor said: the files, the spans and the log lines are searched."""

import json
import logging
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

import httpx
import pytest

from agentops_memory.memory.agent_memory import Tier
from agentops_memory.telemetry import JsonFormatter, Telemetry

from ..support.callers import calling, made_key
from ..support.engines import is_postgresql, rows, tables
from ..support.files import assert_index_is_whole
from ..support.otlp import Collector, collector
from ..support.planted import AGENTS_MEMORY, HOSTS, MARK, note, tool
from ..support.samples import for_each
from ..support.service import Service, observation, serving
from ..support.stores import STORES, ok
from ..support.terminal import Terminal

__all__ = ["collector"]

# In pieces, so that nobody takes this file for a leak.
RARE = "qzxv7rare"
AWS = "AKIA" + "QZXV7RARE" + "K3YQ9AB"
GITHUB = "ghp" + "_" + RARE + "A1b2C3d4E5f6G7h8I9j0K1l2M3n"
PRIVATE = f"<private>{RARE} is what nobody may know</private>"
UNCLOSED = f"<private>{RARE} until the end"
BASE64 = RARE + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8c"
PEM = f"-----BEGIN PRIVATE KEY-----\n{BASE64}\n{BASE64}\n-----END PRIVATE KEY-----"
SECRETS = [AWS, GITHUB, PRIVATE, UNCLOSED, PEM]
# Recognized by their labels alone, since passwords may be spelt like names.
DOTTED, HASHED, SHORT = "Qzxv7" + "rare.Harbor9", "Qzxv7rare" + "#Lagoon8", "qZxV7RaReKmXcVbN"
LABELLED = f"DB_PASSWORD={DOTTED}\npassword: '{HASHED}'\nAPI_KEY={SHORT}\nkept"
CLEANED = (
    "DB_PASSWORD=[REDACTED:password]\npassword: '[REDACTED:password]'\n"
    "API_KEY=[REDACTED:labelled-secret]\nkept"
)

FIELDS = ["session_id", "type", "title", "content", "project", "scope", "topic_key", "tags"]


def everything(folder: Path) -> bytes:
    """Every byte of every file of the folder, and of every table that stands for one."""
    files = (path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    return b"".join(chain(files, (stored for _, stored in tables(folder))))


def assert_not_in(folder: Path) -> None:
    held = everything(folder).lower()
    assert held
    assert RARE.encode() not in held
    assert AWS.lower().encode() not in held


def with_secret(field: str, secret: str) -> dict[str, object]:
    body = observation("apple", scope="project", topic_key="a key", tags=["one"])
    return body | {field: [secret] if field == "tags" else f"{secret}"}


@pytest.fixture
def telling(collector: Collector, tmp_path: Path) -> Iterator[Service]:
    """A service that is traced."""
    telemetry = Telemetry.started(collector.endpoint, collector.protocol)
    try:
        with serving(tmp_path / "memory.db", telemetry=telemetry) as service:
            yield service
    finally:
        telemetry.stop()


@pytest.mark.slow
def test_a_secret_in_any_field_of_a_save_reaches_no_file(service: Service, tmp_path: Path) -> None:
    for field, secret in product(
        FIELDS, [AWS, GITHUB, "<private>" + RARE]
    ):  # short enough for each
        answer = service.http.post("/observations", json=with_secret(field, secret))
        assert answer.status_code == 201, answer.text
        if field != "project":  # which is folded before anything looks at it
            assert answer.headers["x-redacted"] == "1"
    assert_not_in(tmp_path)
    assert_index_is_whole(service.path)


def test_a_secret_in_a_longer_text_is_taken_out_of_it_and_the_rest_is_found(
    service: Service, tmp_path: Path
) -> None:
    for number, secret in enumerate(SECRETS):
        body = observation(f"The banana is at {secret}", title="Where it is", project=f"p{number}")
        answer = service.http.post("/observations", json=body)
        path = f"/observations/{answer.json()['id']}"

        assert answer.headers["x-redacted"] == "1"
        assert service.http.get(path).json()["content"].startswith("The banana is at [REDACTED:")
        assert len(service.http.get(f"/search?q=banana&project=p{number}").json()) == 1
        service.http.patch(path, json={"content": f"now {secret}"})
        service.http.delete(path)
    assert service.http.get(f"/search?q={RARE}").json() == []
    assert_not_in(tmp_path)
    assert_index_is_whole(service.path)
    kept = ("term", "postings") if is_postgresql() else ("stems", "memory_stems")
    assert rows(service.path, "SELECT 1 FROM {1} WHERE {0} LIKE '%qzxv%'".format(*kept)) == []


def written_everywhere(http: httpx.Client) -> None:
    """Write the labelled secrets through every protocol."""
    said = {"messages": [{"role": "user", "content": LABELLED}]}
    mcp_method, mcp_path, mcp_body = tool("mem_save", title="MCP", content=LABELLED)
    value = {"db": {"password": HASHED, "client_secret": DOTTED, "api_key": SHORT}}
    store = ok(http.post(STORES, json={"name": "notes", "description": LABELLED}), 201)["id"]
    answers = [
        http.post("/observations", json=observation(LABELLED, title="saved")),
        http.patch("/observations/1", json={"content": f"changed\n{LABELLED}"}),
        http.post("/sessions/s1/messages", json=said),
        http.post("/sessions/s1/end", json=said),
        http.post("/import", json={"observations": [observation(LABELLED, title="imported")]}),
        http.post(f"{STORES}/{store}/memories", json={"path": "a", "content": LABELLED}),
        http.post(
            AGENTS_MEMORY, headers={"X-Agent-ID": MARK}, json=note(Tier.WORKING, value=value)
        ),
        http.post(f"{HOSTS}/memory", json={"memoryRef": "mem://a", "content": LABELLED}),
        http.request(mcp_method, mcp_path, json=mcp_body),
    ]
    assert [answer.text for answer in answers if not answer.is_success] == []


@pytest.mark.slow
def test_passwords_like_names_and_short_tokens_are_found_by_a_scan_and_reach_no_file_any_more(
    tmp_path: Path,
) -> None:
    path, exceptions = tmp_path / "memory.db", tmp_path / "memory.db.redaction"
    exceptions.write_text(json.dumps({"default": {"allow_kinds": ["password", "labelled-secret"]}}))
    with serving(path) as service:
        written_everywhere(service.http)
        exceptions.unlink()
        assert RARE.encode() in everything(tmp_path).lower()

        Terminal().say("scan", "--db", path, "--redact")

        assert Terminal().say("scan", "--db", path) == "no secrets found in texts\n"
    assert_not_in(tmp_path)
    with serving(tmp_path / "other.db") as other:
        written_everywhere(other.http)
        assert other.http.get("/observations/1").json()["content"] == f"changed\n{CLEANED}"
        entries = other.http.get(f"{HOSTS}/memory", params={"memoryRef": "mem://a"}).json()
    assert entries["entries"][0]["content"] == CLEANED
    assert_not_in(tmp_path)


def test_what_has_no_secret_is_stored_as_it_came_and_no_header_says_otherwise(
    service: Service,
) -> None:
    content = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 is its hash"

    answer = service.http.post("/observations", json=observation(content))

    assert "x-redacted" not in answer.headers
    assert service.http.get(f"/observations/{answer.json()['id']}").json()["content"] == content


def test_a_secret_reaches_no_revision_by_a_change_and_no_summary_by_a_transcript(
    service: Service, tmp_path: Path
) -> None:
    http = service.http
    path = f"/observations/{service.save('apple', topic_key='fruit')['id']}"
    change = {"title": AWS, "content": PEM, "tags": [AWS], "type": AWS}
    changed = http.patch(path, json=change)
    upserted = http.post("/observations", json=observation(GITHUB, topic_key="fruit"))
    http.post(f"{path}/restore", json={"revision": 2})
    opened = http.post("/sessions", json={"id": f"run {AWS}", "project": "p"})
    long = "a" * 195  # a summary is cut after 200 characters: in the middle of the secret
    said = [("user", f"{long} {AWS}"), ("assistant", GITHUB), ("user", f"a {AWS} b")]
    messages = [{"role": role, "content": content} for role, content in said]
    ended = http.post(f"/sessions/run {AWS}/end", json={"messages": messages})

    assert changed.headers["x-redacted"] == "4"
    assert upserted.headers["x-redacted"] == "2"  # its title is its content
    assert opened.json()["id"] == ended.json()["session_id"]
    assert ended.json()["summary"] == (
        f"Session: 3 messages (2 user, 1 assistant). Started with: {long} [RED... "
        "Ended with: a [REDACTED:aws-key-id] b"
    )
    (session,) = http.get("/sessions/recent?project=p").json()
    assert session["message_count"] == 3
    assert_not_in(tmp_path)


def test_an_import_brings_no_secret(service: Service, tmp_path: Path) -> None:
    document = {
        "sessions": [{"id": "s", "project": "p", "summary": f"Started with: {AWS}"}],
        "observations": [with_secret(field, GITHUB) for field in FIELDS if field != "project"]
        + [observation("x", title="another", promoted_to=AWS)],
    }

    answer = service.http.post("/import", json=document)

    assert answer.json() == {"imported_sessions": 1, "imported_observations": 8}
    assert answer.headers["x-redacted"] == "9"
    assert_not_in(tmp_path)
    again = service.http.post("/import", json=service.http.get("/export").json())
    assert again.json() == {"imported_sessions": 0, "imported_observations": 0}


@pytest.mark.slow
def test_placeholders_do_not_make_a_text_too_long_to_be_imported(service: Service) -> None:
    service.save("pg://me:pw12345@db " * 2600, title="long")

    exported = service.http.get("/export").json()
    assert len(exported["observations"][0]["content"]) == 50_000
    with serving(service.path.with_name("other.db")) as other:
        answer = other.http.post("/import", json=exported)
        assert answer.json()["imported_observations"] == 1


@pytest.mark.slow
def test_no_span_and_no_log_line_has_a_secret_nor_half_of_one(
    telling: Service, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    http = telling.http
    refused: list[dict[str, object]] = [
        observation("apple", title="word " * 100 + GITHUB),
        observation("x " * 25_000 + PRIVATE),
        observation("apple", scope=f"postgres://app:{RARE}@db.internal:5432/" + "x" * 50),
        {"title": "no content", "type": "x", "project": "word " * 20 + GITHUB},
    ]
    with caplog.at_level(logging.DEBUG):
        for field in FIELDS:
            http.post("/observations", json=with_secret(field, AWS))
        for path in ("/search?q=", "/context?project=demo&query=", "/observations/recent?project="):
            http.get(path + AWS)
        for path in ("/search?q=", "/context?project=demo&query="):  # which are cut in spans
            for length in (180, 190, 480, 490):
                http.get(f"{path}{'a ' * (length // 2)}{AWS} {GITHUB}")
        telling.save(f"{'b' * 90} {GITHUB}", title=f"{'b' * 80} key")
        http.get("/context", params={"query": f"what is {PEM}", "project": "p"})
        http.post(f"/sessions/{AWS}/end")
        http.get(f"/observations/{AWS}")
        http.post("/observations", json={"session_id": AWS, "tags": [AWS] * 30})
        http.post("/import", content=f'{{"sessions": [{{"id": "{AWS}"}}]}}')
        for body in refused:
            assert http.post("/observations", json=body).status_code == 400
            assert http.post("/import", json={"observations": [body]}).status_code == 400
            assert http.post("/sessions/s/end", json={"messages": [[body]]}).status_code == 400

    assert http.get("/stats").status_code == 200
    collector.await_span("memory.stats")
    said = "\n".join(map(repr, collector.spans))
    assert "[REDACTED:" in said
    assert "validation failed" in said
    for half in (AWS[:8], RARE, GITHUB[:12], GITHUB[-12:], "may know", "</private>"):
        assert half not in said
    own = [record for record in caplog.records if record.name.startswith("agentops_memory")]
    lines = [JsonFormatter().format(record) for record in own]
    assert any("[REDACTED:" in line for line in lines)
    assert [line for line in lines if AWS in line or RARE in line] == []


@pytest.mark.slow
def test_what_the_operator_allows_is_told_in_spans(
    collector: Collector, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    exceptions = tmp_path / "memory.db.redaction"
    exceptions.write_text('{"default": {"allow_kinds": ["aws-key-id"]}}')
    telling: Service = request.getfixturevalue("telling")
    telling.http.get("/search", params={"q": f"{AWS} {GITHUB}", "project": "p"})
    telling.http.get("/stats")
    collector.await_span("memory.stats")

    (search,) = collector.all("memory.search")
    assert search.attributes["memory.search.query"] == f"{AWS} [REDACTED:github-token]"


def test_the_lines_of_a_log_have_no_secret_wherever_it_stands() -> None:
    record = logging.makeLogRecord(
        {"msg": f"a {AWS}", "deep": {AWS: [("x", AWS), {"y": GITHUB}]}, "other": Path(AWS)}
    )

    line = JsonFormatter().format(record)

    assert AWS not in line
    assert RARE not in line
    assert json.loads(line)["message"].startswith("a [REDACTED:")


def test_what_a_tenant_allows_stays_in_its_memories_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    allowed = tmp_path / "memory.db.redaction"
    allowed.write_text(json.dumps({"acme": {"allow": [AWS]}}))
    with serving(path) as service:
        keys = {name: made_key(path, tenant=name) for name in ("acme", "default")}

        def contents(name: str) -> list[str]:
            with calling(service, keys[name]) as client:
                client.post("/observations", json=observation(f"{AWS} {GITHUB}", title="t"))
                rows = client.get("/observations/recent").json()
            return [row["content"] for row in rows]

        assert AWS in contents("acme")[0]
        assert GITHUB not in contents("acme")[0]
        assert AWS not in contents("default")[0]


@for_each(
    "text",
    ["no JSON", "[]", '{"acme": []}', '{"ACME": {}}', '{"acme": {"allow": "x"}}',
     '{"acme": {"allow_kinds": ["no such kind"]}}', '{"acme": {"alow": []}}'],
)  # fmt: skip
def test_a_list_of_exceptions_that_cannot_be_used_ends_the_start(text: str, tmp_path: Path) -> None:
    (tmp_path / "memory.db.redaction").write_text(text)

    with (
        pytest.raises(Exception, match=r"The redaction file .* cannot be used"),
        serving(tmp_path / "memory.db"),
    ):
        pass


def test_a_list_of_exceptions_that_cannot_be_reached_is_not_taken_for_none(tmp_path: Path) -> None:
    allowed = tmp_path / "memory.db.redaction"
    allowed.write_text(json.dumps({"default": {"allow": [AWS]}}))

    with serving(tmp_path / "memory.db") as service:
        allowed.unlink()
        allowed.symlink_to(allowed)
        saved = service.save(AWS, title="t")
        assert service.http.get(f"/observations/{saved['id']}").json()["content"] == AWS
    with (
        pytest.raises(Exception, match=r"The redaction file .* cannot be used: Too many levels"),
        serving(tmp_path / "other.db", MEMORY_REDACTION_FILE=str(allowed)),
    ):
        pass


def test_a_secret_in_a_path_or_a_header_comes_back_in_no_answer(service: Service) -> None:
    for path in (f"/observations/{AWS}", f"/nothing/{AWS}", f"/search?q=x&why_not={AWS}"):
        assert AWS not in service.http.get(path).text


def test_a_secret_is_seen_as_json_and_addresses_escape_it(service: Service) -> None:
    for text in [
        r'{"note": "\u003cprivate\u003eon friday\u003c/private\u003e"}',
        r'{"dsn": "postgres:\/\/app:correct-horse-friday@db\/app"}',
        "postgres%3A%2F%2Fapp%3Acorrect-horse-friday%40db%2Fapp",
    ]:
        saved = service.save(text, title="t")
        assert "friday" not in service.http.get(f"/observations/{saved['id']}").text
