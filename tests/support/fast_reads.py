"""Reads that memory answers: counted, and compared with what the long way answers."""

from typing import Any

import httpx
import pytest

from agentops_memory.agentops.shortcuts import FastReads

from .service import Service

LONG_WAY = {"Idempotency-Key": "any"}  # which means nothing for a GET


class Counted:
    """How often memory answered, and how often it left a request to the long way."""

    answered = declined = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted, answer = Counted(), FastReads.answer

    def counting(self: FastReads, url: bytes, *args: Any) -> bytes | None:
        told = answer(self, url, *args)
        if url.startswith((b"/context", b"/search")):
            counted.answered += told is not None
            counted.declined += told is None
        return told

    monkeypatch.setattr(FastReads, "answer", counting)
    return counted


def both(service: Service, path: str, headers: dict[str, str] | None = None) -> tuple[bytes, bytes]:
    """The whole answers of memory and of the long way, but for their dates."""
    return tuple(  # type: ignore[return-value]
        without_date(service.http.get(path, headers={**(headers or {}), **more}))
        for more in ({}, LONG_WAY)
    )


def without_date(answer: httpx.Response) -> bytes:
    lines = [b"%b: %b" % it for it in answer.headers.raw if it[0].lower() != b"date"]
    return b"\n".join([b"%d" % answer.status_code, *lines, b"", answer.content])


def held(service: Service, counted: Counted, path: str) -> httpx.Response:
    """What memory answers, once it does."""
    for _ in range(200):
        before = counted.answered
        answer = service.http.get(path)
        if counted.answered > before:
            return answer
    raise AssertionError("memory never answered")
