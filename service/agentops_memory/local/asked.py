"""What every question has: a span, refusals as the port has them, and answers as nouns."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from starlette.responses import Response

from agentops_memory_client.contract.errors import refused

from ..api.agentops.routes import STATUS
from ..domain.errors import Refusal
from ..domain.model.access import Caller
from ..domain.model.space import Project, project_name
from ..domain.text.normalization import clean

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asks, told anew for each question, and the span of a question."""

    caller: Callable[[], Caller]
    operation: Callable[[str], AbstractContextManager[object]]

    @contextmanager
    def _asked(self, operation: str) -> Iterator[None]:
        with refusing(), self.operation(operation):
            yield


@contextmanager
def refusing() -> Iterator[None]:
    """Inside, what the domain refuses is refused as the port says."""
    try:
        yield
    except Refusal as refusal:
        raise refused(STATUS[refusal.code], str(refusal)) from refusal


def read(reading: Callable[[bytes, Mapping[str, str]], T], answer: Response) -> T:
    """The noun in an answer."""
    return reading(bytes(answer.body), answer.headers)


def project_of(name: str | None) -> Project | None:
    """A project as it is looked for; none, or one without a name, is all of them."""
    return project_name(clean(name)) or None if name else None
