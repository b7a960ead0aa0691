"""View *Sessions*: each with its summary, and turn by turn with the memories that it saved."""

import json
from typing import Any

from starlette.responses import Response

from ..agentops import wire
from ..agentops.operations import project_of
from ..engine.engine import Transaction
from ..errors import NotFound
from ..http.query import amount
from ..light import dataclass
from ..memory.memory import MemoryId, SessionId, live
from ..memory.search import Filter
from ..memory.sessions import SessionTable, TranscriptTable, recent_sessions
from ..memory.space import Project
from ..memory.table import FilteredTable, Sql
from ..recall.summary import parsed_summary
from ..recall.text import clean
from .memories import COUNTED, loaded
from .page import Visit, address, project_names

ROWS = 25  # sessions of a page
MOST_MEMORIES = 50  # memories of a page


@dataclass(eq=False)
class SessionMemoryTable(FilteredTable):
    """The live memories of sessions, as the lists of memories have them."""

    def counts(self, sessions: list[str]) -> dict[str, int]:
        rows = self._execute(
            f"""SELECT m.session_id, count(*)
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE m.session_id IN (SELECT value FROM {self._sql.texts("listed")})
                       AND {self._on_spaces(Filter())} AND {live("m")}
              GROUP BY m.session_id""",
            **{**self._values(Filter()), "texts": json.dumps(sessions)},
        )
        return dict(iter(rows))

    def ids(self, session: SessionId, after: int, limit: int) -> list[MemoryId]:
        return self._scalars(
            f"""SELECT m.id
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE m.session_id = :session AND m.id > :after
                       AND {self._on_spaces(Filter())} AND {live("m")}
              ORDER BY m.id
                 LIMIT :limit""",
            **{**self._values(Filter()), "session": session, "after": after, "limit": limit},
        )


async def show(visit: Visit) -> Response:
    filters = visit.only("project", "before_id")
    values = await visit.read(listed, project_of(visit.question), filters.get("before_id"))
    twin = address("/sessions/recent", **filters, limit=ROWS)
    return await visit.page("sessions.html", twin, most=ROWS, **values)


def listed(tx: Transaction, project: Project | None, before: str | None) -> dict[str, Any]:
    """Everything at once: with three reads a page under load took three times its twin."""
    sessions = recent_sessions(tx, project, ROWS, SessionId(before) if before else None)
    counts = tx[SessionMemoryTable].counts([it.id for it in sessions])
    rows = [wire.session(it) for it in sessions]
    return {"sessions": rows, "counts": counts, "projects": project_names(tx)}


async def show_one(visit: Visit) -> Response:
    id_ = SessionId(clean(visit.request.path_params["id"]))
    after = amount(visit.question.query, "after") or 0
    values = await visit.read(conversation, id_, after)
    own = {"project": values["session"].project}
    return await visit.page(
        "session.html", address("/sessions/recent", **own, before_id=[*values["newer"]], limit=1),
        address("/observations/recent", **own, limit=COUNTED), most=MOST_MEMORIES, **values,
    )  # fmt: skip


def conversation(tx: Transaction, id_: SessionId, after: int) -> dict[str, Any]:
    """A session with what was said first and last, memories of it, and its neighbors."""
    sessions, transcripts = tx[SessionTable], tx[TranscriptTable]
    session = sessions.get(id_)
    if session is None or not tx.caller.projects.match(session.project):
        raise NotFound("No such session.")
    newer = tx[Sql].texts(
        """SELECT id
             FROM sessions
            WHERE project = :project
                  AND (started_at, number) > (SELECT started_at, number
                                                FROM sessions
                                               WHERE id = :id)
         ORDER BY started_at, number
            LIMIT 1""",
        project=session.project, id=id_,
    )  # fmt: skip
    return {
        "session": wire.session(session),
        "said": transcripts.get(id_) or parsed_summary(session.summary),
        "memories": loaded(tx, tx[SessionMemoryTable].ids(id_, after, MOST_MEMORIES + 1)),
        "newer": newer,
        "older": [it.id for it in sessions.newest(session.project, 1, before=id_)],
    }
