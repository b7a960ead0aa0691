"""Fixtures: a service of its own for each test."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from .losses import TITLE, lost, table, told
from .raw import Wire, wire
from .service import Clock, Service, serving

__all__ = ["lost"]


def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means: two for each core, as tests wait for disks, clocks and processes."""
    return 2 * (os.cpu_count() or 1)


def pytest_configure() -> None:
    """What tests start heeds Ctrl-C, also when they run in the background of a shell."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end, so the garbage collector need never look at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests of faults have told, under one heading."""
    ended = [report for reports in terminalreporter.stats.values() for report in reports]
    losses = told(report for report in ended if isinstance(report, pytest.TestReport))
    if losses:
        terminalreporter.write_sep("=", TITLE)
        terminalreporter.write_line("\n".join(table(losses)))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(tmp_path: Path, clock: Clock) -> Iterator[Service]:
    with serving(tmp_path / "memory.db", clock=clock) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[Wire]:
    """A connection to the service, to send bytes by hand."""
    with wire(service.url) as connection:
        yield connection


@pytest.fixture
def nothing_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No log line of the test tells of an exception."""
    yield
    assert [record for record in caplog.records if record.exc_info] == []
