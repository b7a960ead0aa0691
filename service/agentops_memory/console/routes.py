"""The views of the console as operations."""

from starlette.responses import Response

from ..http.protocol import Operation
from . import ask, documents, memory, projects, review, search, service, sessions
from .page import PREFIX, STATIC_FILES, Console, View, Visit


async def start(visit: Visit) -> Response:
    return visit.see(f"{PREFIX}/memories")


MODULES = (ask, search, memory, review, projects, sessions, documents, service)
VIEWS: tuple[View, ...] = (
    View(path="", name="start", answer=start),
    *(view for module in MODULES for view in module.VIEWS),
)


def operations(console: Console) -> tuple[Operation, ...]:
    return (STATIC_FILES, *(view.operation(console) for view in VIEWS))
