"""The route table of OpenIntent, and what its refusals look like."""

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from ..errors import Refusal
from ..http.bodies import JSON, REDACTED, WRITTEN, written
from ..http.protocol import Operation, Parameter, Protocol
from ..http.refusals import Refusals
from ..memory.model.access import Caller, Role
from ..telemetry import annotate
from . import bodies as b
from . import intent_routes, wire
from . import models as m
from .handlers import SEARCH, TOTAL, OpenIntent
from .intent_handlers import IntentHandlers
from .parameters import EVENTS, LIMIT, MATCH, MUST_MATCH, PAGE, PREFIX, TAG
from .queries import AGENT, require_agent
from .rules.rules import AtItem

REFUSALS = Refusals()


class EntryConvertor(StringConvertor):
    """An id in a path, which is none of the words that have a route of their own."""

    regex = "(?!(?:batch|namespaces|search)$)[^/]+"


register_url_convertor("entry", EntryConvertor())

MEMORY = f"{PREFIX}/memory"
ENTRY, BATCH = f"{MEMORY}/{{entry_id:entry}}", f"{MEMORY}/batch"
NAMESPACES = f"{MEMORY}/namespaces"
NAMESPACE = f"{NAMESPACES}/{{namespace:path}}"
AGENT_PATH = f"{PREFIX}/agents/{{agent}}"
OWN = f"{AGENT_PATH}/memory"
OWN_NAMESPACE, OWN_KEY = f"{OWN}/{{namespace:path}}", f"{OWN}/{{namespace:path}}/{{key:path}}"

CONDITIONS = (
    Parameter(name="namespace", help="Its name; or how it begins, with `*` at the end."),
    Parameter(name="key", help="The key."),
    Parameter(name="memory_type", help="The tier.", choices=("working", "episodic", "semantic")),
    Parameter(name="pinned", kind="boolean", help="Whether it is pinned."),
    Parameter(name="tags", help="All of these, with commas."),
    Parameter(name="tags_any", help="Any of these, with commas."),
    Parameter(name="scope.task_id", help="The task that it names."),
    Parameter(name="scope.intent_id", help="The intent that it names."),
    Parameter(name="updated_after", kind="instant", help="Changed later than this."),
    Parameter(name="updated_before", kind="instant", help="Changed earlier than this."),
)
SEARCHED = ("namespace", "memory_type", "tags", "tags_any")
FILTER = (
    Parameter(name="agent_id", help="Of this agent; of semantic entries: made by it."),
    *CONDITIONS,
)


def operations(api: OpenIntent, intents: IntentHandlers) -> tuple[Operation, ...]:
    """Every operation of the protocol."""
    return (
        Operation(
            method="GET", path="/.well-known/openintent.json", name="openintent_discover",
            summary="What this service speaks of OpenIntent.",
            handler=api.discover, answer=m.Discovery,
        ),
        Operation(
            method="POST", path=MEMORY, name="openintent_create_entry", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Make an entry at a free key; episodic memory makes room for it.",
            handler=api.create_entry, body=b.AgentEntryBody, answer=m.AgentEntryObject,
            headers={**WRITTEN, **TAG}, refusals=(409,),
        ),
        Operation(
            method="GET", path=MEMORY, name="openintent_query_entries", role=Role.READER,
            summary="Entries that the agent may read, newest first.",
            handler=api.query_entries, answer=m.AgentEntryList, query=(*FILTER, *PAGE),
        ),
        Operation(
            method="POST", path=BATCH, name="openintent_write_batch", role=Role.WRITER,
            summary="Make entries, and change those with a version; all of them or none.",
            handler=api.write_batch, body=b.AgentBatchBody, answer=m.WrittenBatch,
            takes_key=True, headers=WRITTEN, refusals=(404, 409),
        ),
        Operation(
            method="DELETE", path=BATCH, name="openintent_delete_batch", role=Role.WRITER,
            summary="Delete what matches and may be changed, at most 1,000 at once.",
            handler=api.delete_batch, answer=m.DeletedAgentEntries,
            query=(*FILTER, LIMIT), takes_key=True,
        ),
        Operation(
            method="GET", path=SEARCH, name="openintent_search_entries", role=Role.READER,
            summary="Own episodic and shared semantic entries by their words, best first.",
            handler=api.search_entries, answer=m.FoundAgentEntries,
            query=(Parameter(name="q", help="Any text.", kind="words", required=True),
                   *(each for each in CONDITIONS if each.name in SEARCHED),
                   Parameter(name="limit", kind="count", is_row_count=True,
                             help="How many, 10 unless told; at most 100.")),
        ),
        Operation(
            method="GET", path=NAMESPACES, name="openintent_list_namespaces", role=Role.READER,
            summary="Semantic namespaces that the agent may read, by name.",
            handler=api.list_namespaces, answer=m.NamespaceList, query=PAGE,
        ),
        Operation(
            method="PATCH", path=NAMESPACE, name="openintent_update_namespace", role=Role.WRITER,
            summary="Say who may do what in a semantic namespace.",
            handler=api.update_namespace, body=b.NamespaceChangeBody, answer=m.NamespaceObject,
            sends=(MATCH,),
            takes_key=True, headers={**WRITTEN, **TAG}, refusals=(404, 409),
        ),
        Operation(
            method="GET", path=NAMESPACE, name="openintent_get_namespace", role=Role.READER,
            summary="A semantic namespace, with who may do what in it.",
            handler=api.get_namespace, answer=m.NamespaceObject, headers=TAG, refusals=(404,),
        ),
        Operation(
            method="GET", path=ENTRY, name="openintent_get_entry", role=Role.READER,
            summary="One entry.",
            handler=api.get_entry, answer=m.AgentEntryObject, headers=TAG, refusals=(404,),
        ),
        Operation(
            method="PATCH", path=ENTRY, name="openintent_update_entry", role=Role.WRITER,
            summary="Change parts of an entry that is at the version of If-Match.",
            handler=api.update_entry, body=b.AgentChangeBody, answer=m.AgentEntryObject,
            sends=(MUST_MATCH,),
            takes_key=True, headers={**WRITTEN, **TAG}, refusals=(404, 409, 428),
        ),
        Operation(
            method="DELETE", path=ENTRY, name="openintent_delete_entry", role=Role.WRITER,
            summary="Delete an entry for good.",
            handler=api.delete_entry, answer=m.DeletedAgentEntry, takes_key=True, sends=(MATCH,),
            refusals=(404, 409),
        ),
        Operation(
            method="GET", path=OWN, name="openintent_list_entries", role=Role.READER,
            summary="Entries of an agent that the asking one may read, newest first.",
            handler=api.list_entries, answer=m.AgentEntryObject, is_list=True,
            query=(*CONDITIONS, *PAGE), headers={TOTAL: "How many there are in all."},
        ),
        Operation(
            method="GET", path=f"{OWN}/summary", name="openintent_get_summary", role=Role.READER,
            summary="What the agent has in each tier.",
            handler=api.get_summary, answer=m.AgentSummaryObject,
        ),
        Operation(
            method="PUT", path=OWN_KEY, name="openintent_put_entry", role=Role.WRITER,
            status_if_new=201, takes_key=True,
            summary="Let the agent's episodic entry at a key have a value, also a new one.",
            handler=api.put_entry, body=b.AgentPutBody, answer=m.AgentEntryObject,
            headers={**WRITTEN, **TAG},
        ),
        Operation(
            method="GET", path=OWN_KEY, name="openintent_get_keyed_entry", role=Role.READER,
            summary="The agent's episodic entry at a key.",
            handler=api.get_keyed_entry, answer=m.AgentEntryObject, headers=TAG, refusals=(404,),
        ),
        Operation(
            method="GET", path=OWN_NAMESPACE, name="openintent_list_namespace_entries",
            role=Role.READER,
            summary="Entries of an agent in one namespace that the asking one may read.",
            handler=api.list_namespace_entries, answer=m.AgentEntryObject, is_list=True,
            query=(*CONDITIONS[1:], *PAGE), headers={TOTAL: "How many there are in all."},
        ),
        Operation(
            method="GET", path=f"{AGENT_PATH}/events", name="openintent_list_agent_events",
            role=Role.READER,
            summary="What happened to the agent's memory, newest first.",
            handler=api.list_events, answer=m.AgentEventObject, is_list=True,
            query=EVENTS,
        ),
        *intent_routes.operations(intents),
    )  # fmt: skip


def require(request: Request, caller: Caller) -> None:
    """Refuse whom this is not for; the span of whom it is for tells the agent that asks."""
    annotate({"memory.agent.id": require_agent(request, caller)})


def refused(refusal: Refusal) -> Response:
    """The answer to a refused request; of a batch, by what is wrong with its item."""
    cause = refusal.refusal if isinstance(refusal, AtItem) else refusal
    return Response(
        written(wire.problem(refusal)),
        REFUSALS.status(cause.code),
        REFUSALS.headers_of(cause),
        media_type=JSON,
    )


PROTOCOL = Protocol(
    title="OpenIntent RFC-0015",
    summary="Agents' own memory in three tiers, and namespaces that they share.",
    prefix=PREFIX,
    refusals=REFUSALS,
    refused=refused,
    problem=m.AgentMemoryProblem,
    require=require,
    sends=(
        Parameter(name=AGENT, help="The agent that asks; needed unless the key has one alone."),
    ),
    sent=(AGENT, "If-Match"),
    read=(REDACTED, "ETag", TOTAL),
)
