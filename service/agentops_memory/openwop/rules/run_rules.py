"""Moved."""
# ruff: noqa: PLC0414

from ..runs import SnapshotLost as SnapshotLost
from ..runs import known_run as known_run
from ..runs import open_run as open_run
from ..runs import require_secrets as require_secrets
