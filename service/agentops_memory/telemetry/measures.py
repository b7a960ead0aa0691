"""The service's measurements, by name, unit and meaning."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from .. import __version__

ANY: tuple[str, ...] = ()  # of a label's values: few, but not known beforehand


class Kind(StrEnum):
    """How a measurement goes: a sum that only grows, the newest value, or how values spread."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measure:
    name: str
    kind: Kind
    unit: str
    help: str
    labels: Mapping[str, tuple[str, ...]]  # the values of each that are known beforehand
    buckets: tuple[float, ...]  # upper bounds, of a histogram


def _measure(
    kind: Kind,
    name: str,
    unit: str,
    meaning: str,
    /,
    buckets: tuple[float, ...] = (),
    **labels: tuple[str, ...],
) -> Measure:
    return Measure(name=name, kind=kind, unit=unit, help=meaning, labels=labels, buckets=buckets)


_counter, _gauge, _histogram = (partial(_measure, kind) for kind in Kind)

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# fmt: off
REQUESTS = _counter(
    "memory_requests_total", "{request}", "Requests that were answered.", method=ANY, route=ANY,
    status=ANY)
REQUEST_SECONDS = _histogram(
    "memory_request_seconds", "s",
    "How long requests took, until the last byte of the answer was handed over.", buckets=QUICK,
    method=ANY, route=ANY)
REQUESTS_IN_FLIGHT = _gauge(
    "memory_requests_in_flight", "{request}",
    "Requests that are being answered, the one that asks for this included.")
CONTEXT_METHOD = _counter(
    "memory_context_method_total", "{memory}",
    "Memories that agents were reminded of, by how they were found.",
    method=("fts5_bm25", "recency"))
CONTEXT_ANSWERS = _counter(
    "memory_context_answers_total", "{answer}",
    "Contexts that agents were given: by words, only the newest, nothing, or the newest because "
    "words took too long.", outcome=("found", "recency", "empty", "degraded"))
DEDUP = _counter(
    "memory_dedup_total", "{save}", "Saves of observations, by what became of them.",
    action=("created", "updated", "deduplicated"))
REDACTIONS = _counter(
    "memory_redactions_total", "{secret}", "Secrets that were taken out of what was written.")
WRITE_QUEUE_DEPTH = _gauge(
    "memory_write_queue_depth", "{write}", "Writes that wait or are being made.")
COMMIT_BATCH_SIZE = _histogram(
    "memory_commit_batch_size", "{write}", "Writes that shared a commit.",
    buckets=(1, 2, 4, 8, 16, 32, 64))
COMMIT_SECONDS = _histogram(
    "memory_commit_seconds", "s", "How long a batch of writes took, until it was on disk.",
    buckets=QUICK)
EVENT_LOOP_LAG = _histogram(
    "memory_event_loop_lag_seconds", "s",
    "By how much a wake-up of the event loop came late, looked at once a second.", buckets=QUICK)
DATABASE_BYTES = _gauge("memory_database_bytes", "By", "Size of the databases that are open.")
WAL_BYTES = _gauge("memory_wal_bytes", "By", "Size of their write-ahead logs.")
DISK_FREE_BYTES = _gauge(
    "memory_disk_free_bytes", "By", "Space that is left where the databases lie.")
ROWS = _gauge(
    "memory_rows", "{row}", "Rows of the databases that are open, deleted memories included.",
    table=("memories", "revisions", "sessions"))
RUNS_OPEN = _gauge(
    "memory_runs_open", "{run}",
    "Runs of hosts that have not ended, in the databases that are open.")
PASSES = _counter(
    "memory_openwop_passes_total", "{pass}", "Passes over refs, by what became of them.",
    kind=("compaction", "distillation", "consolidation"), outcome=("done", "unchanged", "refused"))
COMMITMENTS_FIRED = _counter(
    "memory_commitments_fired_total", "{commitment}",
    "Commitments of entries of hosts that were fired, by their condition.",
    condition=("time", "predicate"))
AGENT_ENTRIES = _gauge(
    "memory_agent_entries", "{entry}",
    "Entries of agents' memory in the databases that are open, those included that have expired "
    "and were not swept yet.", tier=("working", "episodic", "semantic"))
AGENT_EVICTIONS = _counter(
    "memory_agent_evictions_total", "{entry}",
    "Episodic entries that were evicted, as their agents were at capacity.")
AGENT_ARCHIVED = _counter(
    "memory_agent_archived_total", "{entry}",
    "Working entries that were archived at the end of their tasks.")
CAPACITY_REFUSALS = _counter(
    "memory_capacity_refusals_total", "{request}",
    "Writes of agents' memory that were refused, as there was no room to be made.",
    limit=("working", "episodic"))
SESSIONS_OPEN = _gauge(
    "memory_sessions_open", "{session}",
    "Sessions that have not ended, in the databases that are open.")
PINNED = _gauge(
    "memory_pinned", "{memory}", "Live memories that are pinned, in the databases that are open.")
REVIEWS_DUE = _gauge(
    "memory_reviews_due", "{memory}",
    "Live memories whose date of review has passed, in the databases that are open; those that are "
    "due by their type are not counted.")
TENANTS_OPEN = _gauge(
    "memory_tenants_open", "{tenant}",
    "Tenants whose databases are open, the default one included.")
DAMAGED_ROWS = _gauge(
    "memory_damaged_rows", "{row}",
    "Rows that are damaged, and are not served; at most 100 of each database are counted.")
INDEX_DRIFT = _gauge(
    "memory_index_drift_rows", "{row}",
    "By how many rows the full-text index was out of line with the memories, at the last look. It "
    "is mended at once; anything but 0 is worth a report.")
INDEX_PARTITIONS = _gauge(
    "memory_index_partitions", "{partition}", "Partitions of the full-text index.")
EXPIRED = _counter(
    "memory_expired_total", "{memory}",
    "Memories that a sweep took out of the full-text index as they had expired.")
SUPERSEDED = _counter(
    "memory_superseded_total", "{link}", "Links by which saves superseded memories.")
SWEPT_ROWS = _counter(
    "memory_swept_rows_total", "{row}",
    "Rows and audit lines that were removed as they were over their time.",
    kind=("deleted", "expired", "revisions", "idempotency", "audit", "receipts", "events", "log"))
BACKUPS = _counter(
    "memory_backups_total", "{backup}",
    "Backups that the service was to make by itself, by what became of them.",
    outcome=("made", "failed"))
BACKUP_INTERVAL = _gauge(
    "memory_backup_interval_seconds", "s",
    "How old the newest backup may get before the next is made; 0 where the service makes none.")
BACKUP_LAST_SUCCESS = _gauge(
    "memory_backup_last_success_timestamp_seconds", "s",
    "When the newest backup in the folder was begun, in seconds since 1970; 0 where there is none.")
BACKUP_BYTES = _gauge("memory_backup_bytes", "By", "Size of the newest backup.")
INFO = _gauge(
    "memory_info", "1", "The version of the service; the value is 1.", version=(__version__,))
# fmt: on
MEASURES = tuple(it for it in [*globals().values()] if isinstance(it, Measure))  # in this order
