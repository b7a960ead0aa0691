"""Moved."""
# ruff: noqa: PLC0414

from ..entries import ListedRef as ListedRef
from ..entries import Method as Method
from ..entries import Origin as Origin
from ..entries import Provenance as Provenance
from ..entries import Recorded as Recorded
from ..entries import RefDraft as RefDraft
from ..entries import RefEntry as RefEntry
from ..refs import MADE as MADE
from ..refs import RefEntryId as RefEntryId
from ..refs import ref_entry_id as ref_entry_id
from ..refs import stable_id as stable_id
