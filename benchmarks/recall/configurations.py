"""The service with some of its techniques switched off."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentops_memory.recall.features import Feature

from ..process import running
from .asking import answers, load
from .judged import Judged
from .metrics import Asked, Budget

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


def asked(judged: Judged, without: tuple[str, ...], budgets: Sequence[Budget]) -> list[Asked]:
    """The answers of a new service over the set's documents alone."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder) / "memory.db", settings={WITHOUT: ",".join(without)}) as service,
    ):
        load(service.port, judged)
        return answers(service.port, judged, budgets)
