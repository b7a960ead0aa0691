"""Reads that memory answers: counted, and compared with what the long way answers."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import httpx
import pytest

from agentops_memory.agentops.shortcuts import FastReads
from agentops_memory.recall import cache

from .service import Service

COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
LONG_WAY = {"Idempotency-Key": "any"}  # which means nothing for a GET


class Counted:
    """How often memory answered, and how often it left a request to the long way."""

    def __init__(self) -> None:
        self.answered = self.declined = 0
        self.calls: list[int] = []  # of each answer; a comprehension is one before Python 3.12
        self.functions: list[int] = []  # the same without
        self.statements: list[int] = []

    def told(self, answer: bytes | None) -> None:
        self.answered += answer is not None
        self.declined += answer is None


class Work:
    """What was called of ours, and how many statements SQLite was given."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.statements = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted, answer = Counted(), FastReads.answer

    def answered(self: FastReads, url: bytes, *given: Any) -> bytes | None:
        with watched() as work:
            told = answer(self, url, *given)
        if url.startswith((b"/context", b"/search")):
            counted.told(told)
            if told is not None:
                counted.calls.append(len(work.calls))
                counted.functions.append(sum(it not in COMPREHENSIONS for it in work.calls))
                counted.statements.append(work.statements)
        return told

    monkeypatch.setattr(FastReads, "answer", answered)
    monkeypatch.setattr(cache, "REST", 0)
    return counted


@contextmanager
def watched() -> Iterator[Work]:
    """What this thread does inside."""
    work = Work()

    def called(frame: FrameType, event: str, what: Any) -> None:
        if event == "call" and "agentops_memory" in frame.f_code.co_filename:
            work.calls.append(frame.f_code.co_name)
        elif event == "c_call" and what.__name__.startswith("execute"):
            work.statements += isinstance(what.__self__, sqlite3.Connection | sqlite3.Cursor)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield work
    finally:
        sys.setprofile(before)


def both(service: Service, path: str, headers: dict[str, str] | None = None) -> tuple[bytes, bytes]:
    """The whole answers of memory and of the long way, but for their dates."""
    return tuple(  # type: ignore[return-value]
        without_date(service.http.get(path, headers={**(headers or {}), **more}))
        for more in ({}, LONG_WAY)
    )


def without_date(answer: httpx.Response) -> bytes:
    lines = [b"%b: %b" % it for it in answer.headers.raw if it[0].lower() != b"date"]
    return b"\n".join([b"%d" % answer.status_code, *lines, b"", answer.content])


def held(
    service: Service, counted: Counted, path: str, headers: dict[str, str] | None = None
) -> httpx.Response:
    """What memory answers, once it does."""
    for _ in range(200):
        before = counted.answered
        answer = service.http.get(path, headers=headers)
        if counted.answered > before:
            return answer
    raise AssertionError("memory never answered")
