"""Fixtures: a service of its own for each test."""

import asyncio
import gc
import inspect
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from .support import engines, postgres
from .support.databases import Databases
from .support.losses import TITLE, lost, table, told
from .support.raw import Wire, wire
from .support.samples import budgets, represent
from .support.service import Clock, Service, initialized, serving

__all__ = ["lost"]

ALLOCATIONS = 100_000  # between two looks for garbage, which else take a sixth of all the time

# Workers and hundreds of processes load the same modules: each is compiled once, whatever is set.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine", choices=("sqlite", "postgresql"), default=engines.DEFAULT,
        help="what services store in; postgresql leaves out what is of SQLite's files by nature",
    )  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before the profile that the command line names is loaded
def pytest_configure(config: pytest.Config) -> None:
    """What tests start heeds Ctrl-C, also when they run in the background of a shell."""
    budgets()
    if config.getoption("engine") == "postgresql" and not postgres.is_found():
        raise pytest.UsageError(postgres.NOT_FOUND)
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
        gc.set_threshold(ALLOCATIONS)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Some cases represent others; on PostgreSQL some tests are left out."""
    represent(items)
    if config.getoption("engine") == "postgresql":
        config.hook.pytest_deselected(items=[it for it in items if not engines.is_kept(it)])
        items[:] = filter(engines.is_kept, items)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine has a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """What a test has stored is gone with its folder."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    ended = yield
    if folder is not None:
        engines.release(folder)
    return ended


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests of faults have told, under one heading."""
    ended = [report for reports in terminalreporter.stats.values() for report in reports]
    losses = told(report for report in ended if isinstance(report, pytest.TestReport))
    if losses:
        terminalreporter.write_sep("=", TITLE)
        terminalreporter.write_line("\n".join(table(losses)))
    if number := engines.left_out(terminalreporter):
        terminalreporter.write_line(f"{postgres.NOT_FOUND}: {number} tests were left out")


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """PostgreSQL's, of this process; without a PostgreSQL, who asks for them is skipped."""
    if not postgres.is_found():
        pytest.skip(postgres.NOT_FOUND)
    own = tmp_path_factory.getbasetemp()
    run = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    made = Databases(postgres.cluster(run), initialized)
    made.begin()
    yield made
    made.end()


@pytest.fixture(scope="session", autouse=True)
def _engine(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("engine") == "postgresql":
        engines.use(request.getfixturevalue("databases"))


@pytest.fixture
def blank_database(databases: Databases) -> Iterator[str]:
    """The URL of a database of PostgreSQL in which nothing was ever made."""
    with databases.blank() as url:
        yield url


@pytest.fixture
def postgresql(databases: Databases, tmp_path: Path) -> Iterator[str]:
    """The URL of a database of PostgreSQL as a service has made it, on any engine."""
    yield databases.at(tmp_path / "postgresql")
    databases.release(tmp_path / "postgresql")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


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
