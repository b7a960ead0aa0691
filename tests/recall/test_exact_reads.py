"""Whole answers of random histories: memory, the long way and the stored index give the same.

Nothing is swept meanwhile: that takes what has expired out of what is weighed.
"""

from pathlib import Path

import pytest

from agentops_memory.telemetry import Telemetry

from ..support.callers import made_key
from ..support.fast_reads import LONG_WAY, Counted, counted, without_date
from ..support.histories import KEYS, History, Question
from ..support.otlp import http_collector
from ..support.service import Clock, Service, serving

__all__ = ["counted"]


def asked(service: Service, history: History, question: Question, **more: str) -> bytes:
    key, path = question
    return without_date(service.http.get(path, headers={**history.headers(key), **more}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "phases", "steps"),
    [(1, 1, 120), pytest.param(2, 10, 60, marks=pytest.mark.heavy)],
)
def test_whole_answers_of_a_history_are_those_of_the_long_way_and_of_the_stored_index(
    tmp_path: Path, counted: Counted, seed: int, phases: int, steps: int
) -> None:
    path, clock, compared = tmp_path / "memory.db", Clock(), 0
    keys = {name: made_key(path, *of) for name, of in KEYS.items()}
    history = History(keys, seed)
    for _ in range(phases):
        with serving(path, clock=clock, MEMORY_SWEEP_EVERY="0") as service:
            history.service = service
            compared += played(history, service, steps)
            questions = [history.question() for _ in range(min(steps, 40))]
            answers = [asked(service, history, it) for it in questions]
        with serving(path, clock=clock, MEMORY_INDEX_CACHE="0", MEMORY_SWEEP_EVERY="0") as service:
            assert_same(questions, answers, service, history)
        with http_collector() as collector:
            telemetry = Telemetry.started(collector.endpoint, "http/protobuf")
            try:
                with serving(
                    path, clock=clock, MEMORY_SWEEP_EVERY="0", telemetry=telemetry
                ) as service:
                    for _ in range(2):  # before memory holds anything, and afterwards
                        assert_same(questions, answers, service, history)
            finally:
                telemetry.stop()
    assert compared >= phases * steps * 3
    assert counted.answered > compared // 6


def played(history: History, service: Service, steps: int) -> int:
    """How many questions were answered alike by memory and the long way, between changes."""
    compared = 0
    for step in range(steps):
        for _ in range(history.chance.choice([0, 1, 3])):
            history.change()
        if step % 8 == 7:
            history.change_rarely()
        for _ in range(3):
            question = history.question()
            one = asked(service, history, question)
            assert one == asked(service, history, question, **LONG_WAY), question
            compared += 1
    return compared


def assert_same(
    questions: list[Question], answers: list[bytes], service: Service, history: History
) -> None:
    for question, answer in zip(questions, answers, strict=True):
        assert asked(service, history, question) == answer, question
