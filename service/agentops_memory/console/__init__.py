"""The console at /ui: pages for people, over the operations that REST and agents use."""

from starlette.responses import Response

from ..http.protocol import Operation
from ..memory.access import Role
from . import ask, documents, memory, projects, review, search, service, sessions
from .page import PREFIX, STATIC_FILES, Console, View, Visit


async def start(visit: Visit) -> Response:
    return visit.see(f"{PREFIX}/memories")


VIEWS = (
    View("", "start", start),
    View("/ask", "ask", ask.show),
    View("/memories", "memories", search.show),
    View("/memories", "bulk", search.change, Role.WRITER, is_form=True),
    View("/memories/{id}", "memory", memory.show),
    View("/memories/{id}", "memory_change", memory.change, Role.WRITER, is_form=True),
    View("/memories/{id}/edit", "memory_edit", memory.edit, Role.WRITER),
    View("/memories/{id}/edit", "memory_save", memory.save, Role.WRITER, is_form=True),
    View("/memories/{id}/erase", "memory_plan", memory.plan_erasure, Role.ADMIN),
    View("/memories/{id}/erase", "memory_erase", memory.erase, Role.ADMIN, is_form=True),
    View("/erasures/{id}", "erasure", memory.show_receipt),
    View("/review", "review", review.show),
    View("/review", "decide", review.decide, Role.WRITER, is_form=True),
    View("/projects", "projects", projects.show),
    View("/sessions", "sessions", sessions.show),
    View("/sessions/{id:path}", "session", sessions.show_one),
    View("/documents", "documents", documents.show),
    View("/documents/stores/{store}", "documents_store", documents.show_store),
    View("/documents/stores/{store}/{entry}", "document", documents.show_document),
    View("/documents/agents/{agent}", "documents_agent", documents.show_agent),
    View("/documents/agents/{agent}/{entry}", "agent_entry", documents.show_agent_entry),
    View("/documents/refs", "documents_ref", documents.show_ref),
    View("/documents/refs/entry", "ref_entry", documents.show_ref_entry),
    View("/service", "service", service.show),
)


def operations(console: Console) -> tuple[Operation, ...]:
    return (STATIC_FILES, *(view.operation(console) for view in VIEWS))
