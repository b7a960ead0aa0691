"""The service with some of its techniques switched off."""

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

from agentops_memory.domain.text.features import Feature

from ..process import TIMEOUT, running
from .asking import answers, load
from .judged import Judged
from .metrics import Asked

WITHOUT = "MEMORY_RECALL_WITHOUT"
EVERYTHING_ON = "all on"
NAMES = tuple(feature.value for feature in Feature)

Configurations = Mapping[str, tuple[str, ...]]  # a row's name, and what is off in it


def single(without: tuple[str, ...]) -> Configurations:
    """One configuration."""
    return {"without " + ", ".join(without) if without else EVERYTHING_ON: without}


def each() -> Configurations:
    """Everything on, then each technique off alone, then all of them."""
    alone = {f"without {name}": (name,) for name in NAMES}
    return {EVERYTHING_ON: ()} | alone | {"all off": NAMES}


def asked(judged: Judged, without: tuple[str, ...]) -> list[Asked]:
    """The answers of a new service over the set's documents alone."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _environment(WITHOUT, ",".join(without)),
        running(Path(folder) / "memory.db") as service,
    ):
        _await_start(service.port)
        load(service.port, judged)
        return answers(service.port, judged)


def _await_start(port: int) -> None:
    """Until the service has made its file, /health answers and nothing else does."""
    began = time.monotonic()
    while time.monotonic() - began < TIMEOUT:
        with closing(HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("GET", "/stats")
            if connection.getresponse().status != 503:
                return
        time.sleep(0.002)
    raise SystemExit("The service does not start.")


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """A variable that the processes started meanwhile inherit."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
