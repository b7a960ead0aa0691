"""The secrets of runs: what is registered is stored by no write, and is never told again."""

import logging
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from agentops_memory.engine.engine import Engine, noop
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.redactor import Redaction
from agentops_memory.openwop.api import Screen, Serving

from ..support.callers import audit, calling, made_key
from ..support.engine import run
from ..support.engines import rows
from ..support.erasing import remains
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.process import until
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Clock, Service, serving
from ..support.stores import entry as made_entry, store as made_store

VALUE = "zanzibar-hunter2-quokka"
MARK = "[REDACTED:stripe-key]"


def keeper(host: Host, run: str = "r1", name: str = "stripe-key", value: str = VALUE) -> Host:
    """A new run that holds a value."""
    opened = host.in_run(run)
    assert opened.register(name, value) == {"secretId": name, "registered": True}
    return opened


def saved(service: Service, content: str = f"It is {VALUE}.") -> str:
    """What is stored of an observation that is saved."""
    made = service.save(content)
    said: str = service.http.get(f"/observations/{made['id']}").json()["content"]
    return said


Write = Callable[[Service, Host, str], str]


def _append(service: Service, _: Host, text: str) -> str:
    said = {"messages": [{"role": "user", "content": text}]}
    assert service.http.post("/sessions/s9/messages", json=said).status_code == 204
    told: str = service.http.post("/sessions/s9/end", json={}).json()["summary"]
    return told


def _store(service: Service, _: Host, text: str) -> str:
    return repr(made_entry(service.http, made_store(service.http), "a", text))


def _agent(service: Service, _: Host, text: str) -> str:
    body = {"agent_id": "ada", "namespace": "n", "key": "k", "value": {"text": text},
            "memory_type": "episodic"}  # fmt: skip
    headers = {"X-Agent-ID": "ada"}
    return service.http.post("/api/v1/memory", json=body, headers=headers).text


WRITES: dict[str, Write] = {
    "a put of another run": lambda _, host, text: host.in_run("r2").put(text)["content"],
    "a put without a run": lambda _, host, text: str(host.put("x", tags=[text])["tags"]),
    "a put into another ref": lambda _, host, text: Host(host.http, "user:9").put(text)["content"],
    "an observation": lambda service, _, text: saved(service, text), "a message": _append,
    "an entry of a store": _store, "an entry of an agent": _agent,
}  # fmt: skip


@pytest.mark.slow
@requirement("OW-39", "OW-40")
def test_a_value_holds_for_every_write_of_its_tenant_while_its_run_is_open(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service:
        host = Host(service.http)
        keeper(host)
        for name, write in WRITES.items():
            said = write(service, host, f"It is {VALUE}.")
            assert (MARK in said, VALUE in said) == (True, False), (name, said)
    assert remains(tmp_path, VALUE) == set()


@requirement("OW-39")
def test_a_value_that_is_registered_while_a_write_is_screened_is_not_in_it(path: Path) -> None:
    redaction = Redaction({})

    async def clean(screen: Screen) -> tuple[str]:
        said = screen.text(f"It is {VALUE}.")
        redaction.register(OPERATOR.tenant, "r1", "api", VALUE)
        return (said,)

    async def race(engine: Engine) -> None:
        serving = Serving(engine=engine, redaction=redaction, audit=noop, clock=Clock())
        done = await serving.written(OPERATOR, lambda _, text: text, clean)
        assert (done.value, done.redacted) == ("It is [REDACTED:api].", 1)

    run(path, race)


@requirement("OW-39")
def test_a_value_holds_for_no_other_tenant(path: Path) -> None:
    keys = [made_key(path, tenant=it) for it in ("default", "acme")]
    with (
        serving(path) as service,
        calling(service, keys[0]) as ours,
        calling(service, keys[1]) as theirs,
    ):
        keeper(Host(ours))
        assert Host(theirs).put(VALUE)["content"] == VALUE
        assert Host(ours).put(VALUE)["content"] == MARK


@pytest.mark.slow
@requirement("OW-39")
@for_each("status", ["completed", "failed", "cancelled"])
def test_a_value_ends_with_the_last_run_that_registered_it(
    service: Service, host: Host, status: str
) -> None:
    first, second = keeper(host, f"1-{status}"), keeper(host, f"2-{status}", "other")
    first.end(status)

    assert host.put(VALUE)["content"] == "[REDACTED:other]"
    assert saved(service, f"First {VALUE}") == "First [REDACTED:other]"
    second.end(status)

    assert host.put(VALUE)["content"] == VALUE
    assert saved(service, f"Then {VALUE}") == f"Then {VALUE}"
    late = second.ask("POST", f"/runs/{second.run}/secrets", {"secretId": "s", "value": VALUE})
    assert refused(late) == (409, "run_terminal")
    assert VALUE not in late.text
    assert host.put(VALUE)["content"] == VALUE


@requirement("OW-43", "OW-39")
def test_after_a_restart_a_run_takes_no_put_until_its_secrets_are_there_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    with serving(path) as service:
        run = keeper(Host(service.http))
        made = run.put("before")
        for _ in range(2):  # the same one again counts once
            run.register("short", "7 signs")
            run.register("second", "wombat-wombat")
            run.register("stripe-key", f"{VALUE} turned")
        Host(service.http).in_run("other")
    with serving(path) as service:
        host, run = Host(service.http), Host(service.http, run="r1")
        told = run.told()
        for secret, value in (  # others do not stand in for what is lost
            ("third", "a value of its own"), ("stripe-key", VALUE), ("stripe-key", VALUE),
            ("second", "wombat-wombat"),
        ):  # fmt: skip
            lost = run.post(f"It is {VALUE} turned.")
            assert refused(lost) == (409, "run_secrets_lost")
            assert VALUE not in lost.text
            run.register(secret, value)
        assert refused(run.post("plain")) == (409, "run_secrets_lost")
        assert run.told() == told
        assert run.entries() == []
        assert ok(host.get(made["id"]))["entry"] == made
        assert Host(host.http, run="other").put("plain")["content"] == "plain"

        run.register("stripe-key", f"{VALUE} turned")

        assert run.put(f"{VALUE} wombat-wombat")["content"] == f"{MARK} [REDACTED:second]"
    assert remains(tmp_path, VALUE, "wombat-wombat") == set()


@pytest.mark.slow
@requirement("OW-43")
def test_a_run_whose_secrets_are_lost_can_be_ended_and_others_go_on(path: Path) -> None:
    with serving(path) as service:
        keeper(Host(service.http))
        host = Host(service.http).in_run("r2")
        assert host.register("s", "7 signs") == {"secretId": "s", "registered": False}
        assert host.put("7 signs")["content"] == "7 signs"
    with serving(path) as service:
        assert Host(service.http, run="r2").put("plain")["content"] == "plain"
        assert Host(service.http, run="r1").end()["status"] == "completed"
        branch = Host(service.http, run="r1").fork("branch", fromSeq=0)
        made = Host(service.http, run=ok(branch, 201)["runId"]).put("of a branch")
        assert made["content"] == "of a branch"


@pytest.mark.slow
@requirement("OW-64")
def test_a_run_of_which_nothing_is_heard_loses_its_secrets_and_nothing_else(path: Path) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="5ms", MEMORY_SESSION_IDLE="2h") as service:
        host = Host(service.http)
        silent, busy = keeper(host), keeper(host, "r2", "busy", "wombat-wombat")
        before = silent.put("before")
        for _ in range(3):
            service.clock.advance(minutes=50)
            busy.put("still here")
        until(lambda: VALUE in host.put(VALUE)["content"])

        assert busy.put("a wombat-wombat")["content"] == "a [REDACTED:busy]"
        assert refused(silent.post("plain")) == (409, "run_secrets_lost")
        run = ok(host.ask("GET", "/runs/r1"))
        assert (run["status"], "endedAt" in run) == ("running", False)
        assert [it["type"] for it in silent.told()] == ["run.started", "memory.written"]
        assert silent.entries() == []
        assert ok(host.get(before["id"]))["entry"] == before

        silent.register("stripe-key", VALUE)

        assert silent.put(VALUE)["content"] == host.put(VALUE)["content"] == MARK
        assert silent.end()["status"] == "completed"


@pytest.mark.slow
@requirement("OW-40")
def test_a_value_is_nowhere_but_in_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    path, answers = tmp_path / "memory.db", list[httpx.Response]()
    caplog.set_level(logging.DEBUG)
    with serving(path, MEMORY_SWEEP_EVERY="5ms") as service:
        host = Host(service.http, headers={"Idempotency-Key": "one"})
        run = keeper(Host(service.http))
        body: Json = {"secretId": "stripe-key", "value": VALUE}
        for path_, sent in (
            ("/runs/r1/secrets", body), ("/runs/r1/secrets", {"value": VALUE}),
            ("/runs/r1/secrets", {"secretId": 1, "value": [VALUE]}),
            ("/runs/r1/secrets", {"secretId": "s" * 2000, "value": VALUE + "\0"}),
            ("/runs/no/secrets", body), ("/runs", {"runId": VALUE}), ("/runs", {"agentId": VALUE}),
            ("/memory", {"memoryRef": "r", "content": VALUE, "id": VALUE}),
            ("/memory", {"memoryRef": "r", "content": "x", "runId": "r1", "nodeId": VALUE}),
            ("/memory", {"memoryRef": VALUE, "content": "x"}),
            ("/memory", {"memoryRef": "r", "content": VALUE}),
        ):  # fmt: skip
            answers.append(host.ask("POST", path_, sent))
        answers += [
            run.ask("GET", "/runs/r1"), run.ask("GET", "/runs/r1/events"),
            run.ask("GET", "/events"), run.ask("GET", "/memory", params={"memoryRef": "r"}),
            service.http.get("/metrics"), service.http.get("/health"),
        ]  # fmt: skip
        told = [VALUE in it.text for it in answers]
        assert told == [False] * len(told)
        assert [it.status_code for it in answers if it.status_code >= 500] == []
    said = caplog.text + repr([vars(it) for it in caplog.records]) + "".join(capsys.readouterr())
    assert VALUE not in said
    assert remains(tmp_path, VALUE) == set()
    if Path(f"{path}.audit").exists():
        assert VALUE not in repr(audit(path))


@requirement("OW-40")
def test_a_registration_leaves_no_digest_and_is_its_own_repetition(
    service: Service, host: Host
) -> None:
    run = host.in_run("r1")
    once = Host(host.http, run="r1", headers={"Idempotency-Key": "one"})
    answers = [once.register("a", VALUE), once.register("a", VALUE), once.register("b", "wombat-2")]

    assert answers == [{"secretId": it, "registered": True} for it in ("a", "a", "b")]
    assert rows(service.path, "SELECT count(*) FROM done") == [(0,)]
    assert run.put("wombat-2")["content"] == "[REDACTED:b]"


@requirement("OW-39", "OW-14")
def test_a_value_that_is_a_name_of_its_run_is_refused(host: Host) -> None:
    run = host.in_run(VALUE)

    answer = run.ask("POST", f"/runs/{VALUE}/secrets", {"secretId": "s", "value": VALUE})

    assert refused(answer) == (400, "validation_error")
    assert [it["field"] for it in answer.json()["details"]["fields"]] == ["runId"]
