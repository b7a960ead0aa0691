"""Moved."""
# ruff: noqa: PLC0414

from ..refs import AGENT_LENGTHS as AGENT_LENGTHS
from ..refs import ARCHIVE as ARCHIVE
from ..refs import COMPACTED as COMPACTED
from ..refs import DISTILLED as DISTILLED
from ..refs import LONGEST_ID as LONGEST_ID
from ..refs import LONGEST_NODE as LONGEST_NODE
from ..refs import LONGEST_REF as LONGEST_REF
from ..refs import LONGEST_RUN as LONGEST_RUN
from ..refs import MAX_TAGS as MAX_TAGS
from ..refs import IdTaken as IdTaken
from ..refs import MemoryChanged as MemoryChanged
from ..refs import is_malformed as is_malformed
from ..refs import is_readable as is_readable
from ..refs import is_reserved as is_reserved
from ..refs import no_entry as no_entry
from ..refs import require_plain as require_plain
from ..refs import require_ref as require_ref
from ..refs import reserved as reserved
from ..refs import unknown_before as unknown_before
