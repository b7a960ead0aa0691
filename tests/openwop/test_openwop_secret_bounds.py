"""How much memory the values take that a tenant's runs have registered, and what makes room."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..support.engines import rows
from ..support.openwop_hosts import Host, faults, ok, refused
from ..support.openwop_tenants import keyed
from ..support.requirements import requirement
from ..support.service import Service, serving

BOUND = 32 * 1024  # bytes
FULL = (429, "rate_limited")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "memory.db", MEMORY_MAX_RUN_SECRETS=str(BOUND)) as running:
        yield running


def value(number: int) -> str:
    return f"zanzibar-{number:05d}"


def asked(run: Host, number: int, **fields: object) -> httpx.Response:
    body = {"secretId": f"s{number:05d}", "value": value(number), **fields}
    return run.ask("POST", f"/runs/{run.run}/secrets", body)


def filled(run: Host) -> int:
    """How many values a run registers until one is refused."""
    answers = (asked(run, number) for number in range(256))
    return next(number for number, it in enumerate(answers) if it.status_code == 429)


@pytest.mark.slow
@requirement("OW-107", "OW-10")
def test_values_beyond_the_bound_are_429_and_those_before_stay_secret(
    service: Service, host: Host
) -> None:
    run = host.in_run("r1")
    fit = filled(run)

    answer = asked(run, fit)

    assert refused(answer) == FULL
    assert "take 32,768 bytes of memory" in answer.json()["message"]
    assert answer.headers["retry-after"] == "5"
    assert answer.json()["details"] == {"retryAfterMs": 5000, "scope": "tenant"}
    assert value(fit) not in answer.text
    assert host.put(f"{value(0)} {value(fit - 1)} {value(fit)}")["content"] == (
        f"[REDACTED:s00000] [REDACTED:s{fit - 1:05d}] {value(fit)}"
    )
    assert ok(asked(run, 0))["registered"] is True  # it is there, and takes no more
    assert run.put("the run goes on")["content"] == "the run goes on"  # no value of it is lost
    with keyed(service, "writer", "acme") as theirs:
        assert filled(theirs.in_run("r1")) == fit  # each tenant has a bound of its own


@pytest.mark.slow
@requirement("OW-107", "OW-64")
def test_room_of_a_run_that_ended_elsewhere_or_is_unknown_is_free(
    service: Service, host: Host
) -> None:
    for gone in (
        "UPDATE runs SET status = 'completed', ended_at = started_at WHERE name = 'r1'",
        "DELETE FROM runs WHERE name = 'r1'",
    ):
        fit = filled(host.in_run("r1"))
        rows(service.path, gone)  # as another process does it

        run = host.in_run("r2")
        assert filled(run) == fit
        run.end()
        rows(service.path, "DELETE FROM run_events")
        rows(service.path, "DELETE FROM runs")


@pytest.mark.slow
@requirement("OW-107")
def test_after_a_restart_all_of_it_is_free_and_fits_again(path: Path) -> None:
    fits = []
    for opened in (lambda host: host.in_run("r1"), lambda host: Host(host.http, run="r1")):
        with serving(path, MEMORY_MAX_RUN_SECRETS=str(BOUND)) as service:
            fits.append(filled(opened(Host(service.http))))
            assert Host(service.http, run="r1").put(value(0))["content"] == "[REDACTED:s00000]"
    assert fits[0] == fits[1]


@requirement("OW-107")
def test_a_value_that_alone_is_larger_than_the_bound_is_400(path: Path) -> None:
    with serving(path, MEMORY_MAX_RUN_SECRETS="4KiB") as service:
        run = Host(service.http).in_run("r1")
        for large in ("x" * 8192, "\U0001f332" * 1000):  # four bytes a character
            answer = asked(run, 0, value=large)
            assert faults(answer) == ["value"]
            assert large not in answer.text
        assert ok(asked(run, 0))["registered"] is True
        assert run.put("plain")["content"] == "plain"
