"""The route table of the Anthropic dialect, and what its refusals look like."""

from starlette.responses import Response

from ...errors import Refusal
from ...http.bodies import JSON, REDACTED, WRITTEN
from ...http.protocol import Operation, Parameter, Protocol
from ...http.refusals import Refusals
from ...memory.model.access import Role
from ..rules.rules import Policy
from . import models as m
from . import wire
from .handlers import AnthropicStores
from .queries import DEPTHS, FROM, MAX_PAGE, OPERATIONS, TO, VIEWS
from .wire import REQUEST_ID, new_request_id

POLICY = Policy(
    paths_nest=False,
    unchanged_is_change=False,
    done_is_done=True,
    repeats_are_refused=False,
    archived_keeps_entries=False,
    current_is_redacted=False,
    redaction_takes_all=True,
)

PREFIX = "/anthropic"
STORES = f"{PREFIX}/v1/memory_stores"
STORE = f"{STORES}/{{memory_store_id}}"
MEMORIES = f"{STORE}/memories"
MEMORY = f"{MEMORIES}/{{memory_id}}"
VERSIONS = f"{STORE}/memory_versions"
VERSION = f"{VERSIONS}/{{memory_version_id}}"

BUSY = "overloaded_error"
NOT_AGAIN = {"x-should-retry": "false"}  # the client asks three times otherwise
REFUSALS = Refusals(
    statuses={"too_large": 400, "archived": 400, "still_current": 400},
    types={
        "too_slow": "timeout_error",
        "stale": "memory_precondition_failed_error",
        "path_taken": "memory_path_conflict_error",
        "db_locked": BUSY,
        "timed_out": BUSY,
    },
    headers={409: NOT_AGAIN, 507: NOT_AGAIN},
)

VIEW = Parameter(
    name="view",
    help="Whether contents are shown: `full`, or `basic` without.",
    choices=tuple(VIEWS),
)
LIMIT = Parameter(
    name="limit", kind="count", most=MAX_PAGE, is_row_count=True,
    help="How many items, from 1 to 100; 20 if absent, and at most 20 with `view=full`.",
)  # fmt: skip
PAGE = Parameter(name="page", help="The `next_page` of the page before.")
CREATED = (
    Parameter(name=FROM, help="Created at this instant or later.", kind="instant"),
    Parameter(name=TO, help="Created at this instant or earlier.", kind="instant"),
)


def operations(api: AnthropicStores) -> tuple[Operation, ...]:
    """Every operation of the protocol."""
    return (
        Operation(
            method="POST", path=STORES, name="anthropic_create_store", role=Role.WRITER,
            summary="Create a memory store.",
            handler=api.create_store, body=m.AnthropicStoreBody, answer=m.AnthropicStore,
            headers=WRITTEN, takes_key=True,
        ),
        Operation(
            method="GET", path=STORES, name="anthropic_list_stores", role=Role.READER,
            summary="Memory stores, newest first.",
            handler=api.list_stores, answer=m.AnthropicStoreList,
            query=(Parameter(name="include_archived", help="`true` shows archived ones too.",
                             kind="boolean"), *CREATED, LIMIT, PAGE),
        ),
        Operation(
            method="GET", path=STORE, name="anthropic_get_store", role=Role.READER,
            summary="One memory store, archived or not.",
            handler=api.get_store, answer=m.AnthropicStore, refusals=(404,),
        ),
        Operation(
            method="POST", path=STORE, name="anthropic_update_store", role=Role.WRITER,
            summary="Change parts of a memory store.",
            handler=api.update_store, body=m.AnthropicStoreChange, body_required=False,
            answer=m.AnthropicStore, headers=WRITTEN, refusals=(404,), takes_key=True,
        ),
        Operation(
            method="POST", path=f"{STORE}/archive", name="anthropic_archive_store",
            role=Role.WRITER, takes_key=True,
            summary="Close a memory store for good; a second time changes nothing.",
            handler=api.archive_store, answer=m.AnthropicStore, refusals=(404,),
        ),
        Operation(
            method="DELETE", path=STORE, name="anthropic_delete_store", role=Role.ADMIN,
            summary="Delete a memory store with all that is in it.",
            handler=api.delete_store, answer=m.AnthropicStoreDeleted, refusals=(404,),
            takes_key=True,
        ),
        Operation(
            method="POST", path=MEMORIES, name="anthropic_create_memory", role=Role.WRITER,
            summary="Create a memory at a path.",
            handler=api.create_memory, body=m.AnthropicMemoryBody, answer=m.AnthropicMemory,
            query=(VIEW,), headers=WRITTEN, refusals=(404,), takes_key=True,
        ),
        Operation(
            method="GET", path=MEMORIES, name="anthropic_list_memories", role=Role.READER,
            summary="Memories in the order of their paths.",
            handler=api.list_memories, answer=m.AnthropicMemoryList, refusals=(404,),
            query=(Parameter(name="path_prefix", help="A folder: `/notes/`."),
                   Parameter(name="depth", help="`1` shows folders for what lies deeper.",
                             choices=tuple(DEPTHS)), VIEW, LIMIT, PAGE),
        ),
        Operation(
            method="GET", path=MEMORY, name="anthropic_get_memory", role=Role.READER,
            summary="One memory, with its content unless the view is basic.",
            handler=api.get_memory, answer=m.AnthropicMemory, query=(VIEW,), refusals=(404,),
        ),
        Operation(
            method="POST", path=MEMORY, name="anthropic_update_memory", role=Role.WRITER,
            summary="Change the content of a memory, or its path.",
            handler=api.update_memory, body=m.AnthropicMemoryChange, body_required=False,
            answer=m.AnthropicMemory, query=(VIEW,), headers=WRITTEN,
            refusals=(404,), takes_key=True,
        ),
        Operation(
            method="DELETE", path=MEMORY, name="anthropic_delete_memory", role=Role.WRITER,
            summary="Delete a memory; its versions stay.",
            handler=api.delete_memory, answer=m.AnthropicMemoryDeleted,
            query=(Parameter(name="expected_content_sha256",
                             help="The hash that its content must have."),),
            refusals=(404,), takes_key=True,
        ),
        Operation(
            method="GET", path=VERSIONS, name="anthropic_list_versions", role=Role.READER,
            summary="Versions of the memories of a store, newest first.",
            handler=api.list_versions, answer=m.AnthropicVersionList, refusals=(404,),
            query=(Parameter(name="memory_id", help="Of this memory, which may be deleted."),
                   Parameter(name="operation", help="Of this kind.", choices=tuple(OPERATIONS)),
                   Parameter(name="api_key_id", help="Written with this key."),
                   Parameter(name="session_id", help="Matches nothing."),
                   Parameter(name="service_account_id", help="Matches nothing."),
                   *CREATED, VIEW, LIMIT, PAGE),
        ),
        Operation(
            method="GET", path=VERSION, name="anthropic_get_version", role=Role.READER,
            summary="One version, with its content unless the view is basic.",
            handler=api.get_version, answer=m.AnthropicVersion, query=(VIEW,), refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{VERSION}/redact", name="anthropic_redact_version",
            role=Role.ADMIN, takes_key=True,
            summary="Take what a version says out for good.",
            handler=api.redact_version, answer=m.AnthropicVersion, refusals=(404,),
        ),
    )  # fmt: skip


def refused(refusal: Refusal) -> Response:
    """The answer to a refused request."""
    request_id, type_ = new_request_id(), REFUSALS.type(refusal.code)
    content = wire.problem(refusal, type_, request_id).model_dump_json(exclude_none=True)
    headers = {REQUEST_ID: request_id, **REFUSALS.headers_of(refusal)}
    return Response(content, REFUSALS.status(refusal.code), headers, media_type=JSON)


PROTOCOL = Protocol(
    title="Anthropic dialect",
    summary="The same stores, as the Python package `anthropic` asks for them.",
    prefix=PREFIX,
    refusals=REFUSALS,
    refused=refused,
    problem=m.AnthropicProblem,
    headers={REQUEST_ID: "An id of the answer, which the log names too."},
    sent=(
        # What the packages of this dialect send of their own accord.
        "anthropic-version", "anthropic-beta", "anthropic-workspace-id",
        "anthropic-dangerous-direct-browser-access",
        "X-Stainless-Arch", "X-Stainless-Async", "X-Stainless-Helper", "X-Stainless-Helper-Method",
        "X-Stainless-Lang", "X-Stainless-OS", "X-Stainless-Package-Version",
        "X-Stainless-Read-Timeout", "X-Stainless-Retry-Count", "X-Stainless-Runtime",
        "X-Stainless-Runtime-Version", "X-Stainless-Stream-Helper", "X-Stainless-Timeout",
    ),
    read=(REDACTED, REQUEST_ID),
)  # fmt: skip
