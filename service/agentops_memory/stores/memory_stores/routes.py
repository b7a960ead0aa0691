"""The route table of the Memory Stores API, and what its refusals look like."""

from starlette.responses import Response
from starlette.types import Scope

from ...errors import Refusal
from ...http.bodies import REDACTED, WRITTEN
from ...http.protocol import Operation, Parameter, Protocol
from ...http.refusals import Refusals
from ...http.request_ids import REQUEST_ID, Refused
from ...memory.model.access import Role
from ..rules.rules import Policy
from . import models as m
from . import wire
from .handlers import MemoryStores
from .queries import CREATED_FROM, CREATED_TO

POLICY = Policy(
    paths_nest=True,
    unchanged_is_change=True,
    done_is_done=False,
    repeats_are_refused=True,
    archived_keeps_entries=True,
    current_is_redacted=True,
    redaction_takes_all=False,
    longest_name=m.MAX_NAME,
)
REFUSALS = Refusals(statuses={"too_large": 400})

PREFIX = "/api/v1/cloud"
STORES = f"{PREFIX}/memory_stores"
STORE = f"{STORES}/{{store_id}}"
ENTRIES, VERSIONS = f"{STORE}/memories", f"{STORE}/versions"
ENTRY, VERSION = f"{ENTRIES}/{{entry_id}}", f"{VERSIONS}/{{version_id}}"

LIMIT = Parameter(
    name="limit",
    help="How many, 20 unless told; at most 100, also for more.",
    kind="count",
    is_row_count=True,
)
PAGE = (
    LIMIT,
    Parameter(name="after_id", help="Only what is older than what has this id."),
    Parameter(name="before_id", help="Only what is newer than what has this id, next to it."),
)
CREATED = (
    Parameter(name=CREATED_FROM, help="Created at this RFC 3339 time or later.", kind="instant"),
    Parameter(name=CREATED_TO, help="Created at this RFC 3339 time or earlier.", kind="instant"),
)


def operations(api: MemoryStores) -> tuple[Operation, ...]:
    """Every operation of the protocol."""
    return (
        Operation(
            method="POST", path=STORES, name="create_store", status=201, role=Role.WRITER,
            summary="Make a memory store; names need not differ.",
            handler=api.create_store, body=m.StoreBody, answer=m.StoreObject,
            takes_key=True, headers=WRITTEN,
        ),
        Operation(
            method="GET", path=STORES, name="list_stores", role=Role.READER,
            summary="Memory stores, newest first.",
            handler=api.list_stores, answer=m.StoreList,
            query=(*PAGE, *CREATED,
                   Parameter(name="name", help="Its beginning, whatever its case."),
                   Parameter(name="include_archived", help="`true` lists archived ones too.",
                             kind="boolean")),
        ),
        Operation(
            method="GET", path=STORE, name="get_store", role=Role.READER,
            summary="One memory store.",
            handler=api.get_store, answer=m.StoreObject, refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{STORE}/archive", name="archive_store", role=Role.WRITER,
            summary="Close a memory store for good: it is read from then on.",
            handler=api.archive_store, answer=m.StoreObject, takes_key=True, refusals=(404,),
        ),
        Operation(
            method="DELETE", path=STORE, name="delete_store", status=204, role=Role.ADMIN,
            summary="Delete a memory store with everything in it.",
            handler=api.delete_store, takes_key=True, refusals=(404,),
        ),
        Operation(
            method="GET", path=f"{STORE}/search", name="search_store", role=Role.READER,
            summary="Memories of a store by their words and paths, best first.",
            handler=api.search_store, answer=m.EntryHits, refusals=(404,),
            query=(Parameter(name="q", help="Any text.", kind="words", required=True), LIMIT),
        ),
        Operation(
            method="POST", path=ENTRIES, name="create_entry", status=201, role=Role.WRITER,
            summary="Write a memory at a path that is free.",
            handler=api.create_entry, body=m.EntryBody, answer=m.EntryObject,
            takes_key=True, headers=WRITTEN, refusals=(404,),
        ),
        Operation(
            method="GET", path=ENTRIES, name="list_entries", role=Role.READER,
            summary="Memories of a store without their contents, newest first.",
            handler=api.list_entries, answer=m.EntryList, refusals=(404,),
            query=(*PAGE, *CREATED,
                   Parameter(name="path_prefix", help="How the path begins, letter by letter.")),
        ),
        Operation(
            method="GET", path=ENTRY, name="get_entry", role=Role.READER,
            summary="One memory, with its content.",
            handler=api.get_entry, answer=m.EntryObject, refusals=(404,),
        ),
        Operation(
            method="PUT", path=ENTRY, name="update_entry", role=Role.WRITER,
            summary="Replace the content of a memory, if it is in the state that is expected.",
            handler=api.update_entry, body=m.EntryChangeBody, answer=m.EntryObject,
            takes_key=True, headers=WRITTEN, refusals=(404,),
        ),
        Operation(
            method="DELETE", path=ENTRY, name="delete_entry", status=204, role=Role.WRITER,
            summary="Delete a memory; its versions stay.",
            handler=api.delete_entry, takes_key=True, refusals=(404,),
        ),
        Operation(
            method="GET", path=VERSIONS, name="list_versions", role=Role.READER,
            summary="Versions of a store's memories without their contents, newest first.",
            handler=api.list_versions, answer=m.VersionList, refusals=(404,),
            query=(*PAGE, Parameter(name="entry_id", help="Only those of this memory.")),
        ),
        Operation(
            method="GET", path=VERSION, name="get_version", role=Role.READER,
            summary="One version, with its content unless it is redacted.",
            handler=api.get_version, answer=m.VersionObject, refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{VERSION}/redact", name="redact_version", role=Role.ADMIN,
            summary="Take the content out of a version for good.",
            handler=api.redact_version, answer=m.VersionObject, takes_key=True, refusals=(404,),
        ),
    )  # fmt: skip


def refused(refusal: Refusal) -> Response:
    """The answer to a refused request, which names the ids in its path."""

    def content(scope: Scope, id_: str) -> bytes:
        type_ = REFUSALS.type(refusal.code)
        problem = wire.problem(refusal, type_, scope.get("path_params", {}), id_)
        return problem.model_dump_json().encode()

    return Refused(refusal, REFUSALS, content)


PROTOCOL = Protocol(
    title="Memory Stores",
    summary="Documents at paths, with immutable versions.",
    prefix=PREFIX,
    refusals=REFUSALS,
    refused=refused,
    problem=m.StoreProblem,
    headers={REQUEST_ID: "The id that the client gave the request, or a new one."},
    sent=(REQUEST_ID,),
    read=(REDACTED, REQUEST_ID),
    is_authorization_only=True,
    require=lambda _, caller: caller.require_stores(),
)
