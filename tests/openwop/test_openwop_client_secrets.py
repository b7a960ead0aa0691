"""Secrets of runs through the Python client: given again where they are lost, shown nowhere."""

import re
import traceback
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest

from agentops_memory_client import Conflict, Invalid, MemoryClient, MemoryServiceError, Unreachable
from agentops_memory_client.openwop import register_secret

from ..support.asking import Happening, Road, answering, asking, over
from ..support.openwop_hosts import REF, Host
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Clock, Service, serving
from .test_openwop_client import MARK, VALUE, types

SECRETS = re.compile(r"/secrets$")


def whole(error: BaseException) -> str:
    """Everything that is shown of an error."""
    return "".join(traceback.format_exception(error)) + repr(error)


@requirement("OW-104")
def test_a_service_that_has_lost_the_secrets_is_given_them_again_once(
    kind: str, path: Path, clock: Clock
) -> None:
    services: list[Service] = []

    def to_the_last(request: httpx.Request) -> httpx.Response:
        return over(services[-1])(request)

    road = Road([to_the_last])
    with asking(kind, road=road) as client:
        run = client.openwop.run("r1")
        with serving(path, clock=clock) as first:
            services.append(first)
            run.open()
            assert run.secret("stripe-key", VALUE) is True
            assert run.secret("stripe-key", VALUE[::-1]) is True  # another value of the same
            assert run.secret("other", "another value") is True
            assert run.secret("short", "7 signs") is False
        with serving(path, clock=clock) as second:
            services.append(second)
            road.requests.clear()
            entry = run.put(REF, f"It is {VALUE}, {VALUE[::-1]}, another value.", node_id="n1")
            assert [bool(SECRETS.search(it.url.path)) for it in road.requests] == [
                False, True, True, True, True, False
            ]  # fmt: skip
            road.requests.clear()
            run.put(REF, "and more")
            assert len(road.requests) == 1
            run.end()

            assert entry.content == f"It is {MARK}, {MARK}, [REDACTED:other]."
            assert types(Host(second.http)) == ["started", "written", "written", "completed"]


LOST = answering(409, {"error": "run_secrets_lost", "message": "They are lost."})
ENDED = answering(409, {"error": "run_terminal", "message": "The run has ended."})
REGISTERED = answering(200, {"secretId": "s", "registered": True})
INVALID = answering(400, {"error": "validation_error", "message": "No."})


@requirement("OW-104")
@for_each(
    "happenings, failure, paths",
    [
        ([REGISTERED, LOST, REGISTERED, LOST], None, "secrets memory secrets memory"),  # but once
        ([REGISTERED, ENDED], None, "secrets memory"),
        ([INVALID, LOST], Invalid, "secrets memory"),  # one that can be none
        ([httpx.ReadError("cut"), LOST, REGISTERED, LOST], Unreachable,
         "secrets memory secrets memory"),
    ],
)  # fmt: skip
def test_secrets_that_may_be_there_are_given_again_once(
    kind: str, happenings: list[Happening], failure: type[Exception] | None, paths: str
) -> None:
    road = Road(happenings)
    with asking(kind, road=road, retries=0) as client:
        run = client.openwop.run("r1")
        with pytest.raises(failure) if failure else nullcontext():
            run.secret("s", VALUE)
        with pytest.raises(Conflict) as refusal:
            run.put(REF, "text")

    assert [it.url.path.rpartition("/")[2] for it in road.requests] == paths.split()
    assert len({*road.keys[1::2]}) == 1  # the same request, sent again
    assert {*road.keys[::2]} == {None}
    assert len({it.content for it in road.requests[::2]}) == 1
    assert VALUE not in whole(refusal.value)


@requirement("OW-104", "OW-40")
def test_a_value_is_in_no_repr_and_no_error(
    kind: str, client: MemoryClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with client.openwop.run("r1") as run:
        run.secret("stripe-key", VALUE)
        assert run.put(REF, f"It is {VALUE}.").content == f"It is {MARK}."
        with pytest.raises(Invalid) as invalid:
            run.secret("x" * 1000, VALUE)
        shown = [repr(run), str(run), repr(client), repr(client.openwop), repr(run.memory)]
        assert f"{'Async' * (kind == 'awaiting')}Run('r1')" in shown
        shown += [whole(invalid.value), caplog.text]
    shown.append(repr(register_secret("r1", "stripe-key", VALUE)))
    happenings: tuple[Happening, ...] = (
        httpx.ReadError("cut"), answering(200, html="<html>"), answering(200, {"registered": []}),
        answering(503, {"error": "service_unavailable", "message": "Busy."}),
    )  # fmt: skip
    for happening in happenings:
        with asking(kind, road=Road([happening]), retries=0) as nobody:
            with pytest.raises(MemoryServiceError) as failure:
                nobody.openwop.run("r1").secret("stripe-key", VALUE)
            shown.append(whole(failure.value))

    assert [text for text in shown if VALUE in text] == []
