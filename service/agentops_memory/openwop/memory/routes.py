"""The operations of the adapter, of runs and of their events."""

from collections.abc import Sequence

from ...http.bodies import WRITTEN
from ...http.protocol import Operation, Parameter
from ...memory.model.access import Role
from . import bodies as b
from . import models as m
from .discovery import BASE, PATH, Discovery
from .handlers import OpenWop
from .parameters import BUDGET, IN_RUN, OF_RUN, REF, TAG, limit

MEMORY, ENTRY = f"{BASE}/memory", f"{BASE}/memory/{{memoryId:path}}"
PROVENANCE = f"{BASE}/provenance/{{memoryId:path}}"
RUNS, RUN = f"{BASE}/runs", f"{BASE}/runs/{{runId}}"


def operations(api: OpenWop, discovery: Discovery) -> Sequence[Operation]:
    """Every operation of the adapter and of runs."""
    return (
        Operation(
            method="GET", path=PATH, name="openwop_discover",
            summary="What is served of OpenWOP.",
            handler=discovery.discover, answer=m.HostDiscovery,
            headers={"ETag": "Of the document."},
        ),
        Operation(
            method="GET", path=MEMORY, name="openwop_list", role=Role.READER,
            summary="Live entries of a ref that no live one supersedes, newest first.",
            handler=api.list_entries, answer=m.ListedRefEntries,
            query=(
                REF, TAG, limit(100, 500), BUDGET,
                Parameter(name="rank", help="The order.", choices=("recency",)),
                Parameter(name="before", help="An entry's id: those older than it."),
                IN_RUN,
            ),
            refusals=(404, 422),
        ),
        Operation(
            method="POST", path=MEMORY, name="openwop_put", role=Role.WRITER, status=201,
            status_if_new=200,
            summary="Put an entry; the same one again under a host's id is the first.",
            handler=api.put_entry, body=b.RefEntryBody, answer=m.OneRefEntry, takes_key=True,
            headers=WRITTEN, refusals=(404, 409),
        ),
        Operation(
            method="GET", path=ENTRY, name="openwop_get", role=Role.READER,
            summary="One entry, also one that another supersedes.",
            handler=api.get_entry, answer=m.OneRefEntry, query=(REF, IN_RUN), refusals=(404, 422),
        ),
        Operation(
            method="DELETE", path=ENTRY, name="openwop_delete", role=Role.WRITER,
            summary="Delete an entry.",
            handler=api.delete_entry, answer=m.DeletedRefEntry, query=(REF, OF_RUN),
            takes_key=True, refusals=(404, 409),
        ),
        Operation(
            method="GET", path=f"{BASE}/search", name="openwop_search", role=Role.READER,
            summary="Live entries of a ref by their words, best first.",
            handler=api.search_entries, answer=m.FoundRefEntries,
            query=(
                REF, Parameter(name="q", help="Any text.", kind="words", required=True), TAG,
                limit(10, 100), BUDGET,
            ),
        ),
        Operation(
            method="GET", path=PROVENANCE, name="openwop_provenance", role=Role.READER,
            summary="Who put an entry, and what replaces it.",
            handler=api.get_provenance, answer=m.ProvenanceObject, query=(REF,), refusals=(404,),
        ),
        Operation(
            method="GET", path=f"{BASE}/refs", name="openwop_refs", role=Role.READER,
            summary="Refs that hold entries, in code point order.",
            handler=api.list_refs, answer=m.ListedRefs,
            query=(limit(100, 1000), Parameter(name="after", help="A ref: those after it.")),
        ),
    )  # fmt: skip
