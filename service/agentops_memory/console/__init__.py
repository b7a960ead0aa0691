"""The console at /ui: pages for people, over the operations that REST and agents use."""

from starlette.responses import Response

from ..http.protocol import Operation
from ..memory.access import Role
from . import memories, overviews
from .page import PREFIX, STATIC_FILES, Console, View, Visit


async def start(visit: Visit) -> Response:
    return visit.redirect(f"{PREFIX}/memories")


VIEWS = (
    View("", "start", start),
    View("/ask", "ask", memories.ask),
    View("/memories", "memories", memories.show_list),
    View("/memories", "bulk", memories.change_many, Role.WRITER, is_form=True),
    View("/memories/{id}", "memory", memories.show),
    View("/memories/{id}", "memory_change", memories.change, Role.WRITER, is_form=True),
    View("/memories/{id}/edit", "memory_edit", memories.edit, Role.WRITER),
    View("/memories/{id}/edit", "memory_save", memories.save, Role.WRITER, is_form=True),
    View("/memories/{id}/erase", "memory_plan", memories.plan_erasure, Role.ADMIN),
    View("/memories/{id}/erase", "memory_erase", memories.erase, Role.ADMIN, is_form=True),
    View("/erasures/{id}", "erasure", memories.show_receipt),
    View("/review", "review", memories.show_review),
    View("/review", "decide", memories.decide, Role.WRITER, is_form=True),
    View("/projects", "projects", overviews.show_projects),
    View("/sessions", "sessions", overviews.show_sessions),
    View("/sessions/{id:path}", "session", overviews.show_one),
    View("/documents", "documents", overviews.show_documents),
    View("/documents/stores/{store}", "documents_store", overviews.show_store),
    View("/documents/stores/{store}/{entry}", "document", overviews.show_document),
    View("/documents/agents/{agent}", "documents_agent", overviews.show_agent),
    View("/documents/agents/{agent}/{entry}", "agent_entry", overviews.show_agent_entry),
    View("/documents/refs", "documents_ref", overviews.show_ref),
    View("/documents/refs/entry", "ref_entry", overviews.show_ref_entry),
    View("/service", "service", overviews.show_service),
)


def operations(console: Console) -> tuple[Operation, ...]:
    return (STATIC_FILES, *(view.operation(console) for view in VIEWS))
