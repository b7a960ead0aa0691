"""The metrics: their names, units and meanings."""

from enum import StrEnum
from functools import partial

from .. import __version__

ANY: tuple[str, ...] = ()  # a label whose values are few, but not known beforehand


class Kind(StrEnum):
    """The kind of a metric: a growing sum, the newest value, or a distribution."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Measure:
    """A metric. `labels` has each label's known values; `buckets` are upper bounds."""

    def __init__(
        self, kind: Kind, name: str, unit: str, meaning: str, /, buckets: tuple[float, ...] = (),
        **labels: tuple[str, ...],
    ) -> None:  # fmt: skip
        self.kind, self.name, self.unit, self.help = kind, name, unit, meaning
        self.buckets, self.labels = buckets, labels


_counter, _gauge, _histogram = (partial(Measure, kind) for kind in Kind)

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# fmt: off
REQUESTS = _counter(
    "memory_requests_total", "{request}", "Requests answered.", method=ANY, route=ANY,
    status=ANY)
REQUEST_SECONDS = _histogram(
    "memory_request_seconds", "s",
    "Duration of requests, until the last byte of the response was sent.", buckets=QUICK,
    method=ANY, route=ANY)
REQUESTS_IN_FLIGHT = _gauge(
    "memory_requests_in_flight", "{request}",
    "Requests in progress, including the one that reads this metric.")
CONTEXT_METHOD = _counter(
    "memory_context_method_total", "{memory}",
    "Memories returned in contexts, by how they were found.",
    method=("fts5_bm25", "recency"))
CONTEXT_ANSWERS = _counter(
    "memory_context_answers_total", "{answer}",
    "Contexts returned, by what they held: matches, the newest memories, nothing, or the newest "
    "because the search timed out.", outcome=("found", "recency", "empty", "degraded"))
DEDUP = _counter(
    "memory_dedup_total", "{save}", "Saves of observations, by outcome.",
    action=("created", "updated", "deduplicated"))
REDACTIONS = _counter(
    "memory_redactions_total", "{secret}", "Secrets removed from what was written.")
WRITE_QUEUE_DEPTH = _gauge(
    "memory_write_queue_depth", "{write}", "Writes waiting or in progress.")
COMMIT_BATCH_SIZE = _histogram(
    "memory_commit_batch_size", "{write}", "Writes per commit.",
    buckets=(1, 2, 4, 8, 16, 32, 64))
COMMIT_SECONDS = _histogram(
    "memory_commit_seconds", "s", "Duration of a batch of writes, until it was on disk.",
    buckets=QUICK)
EVENT_LOOP_LAG = _histogram(
    "memory_event_loop_lag_seconds", "s",
    "Delay of the event loop's wake-ups, sampled once a second.", buckets=QUICK)
DATABASE_BYTES = _gauge("memory_database_bytes", "By", "Size of the open databases.")
WAL_BYTES = _gauge("memory_wal_bytes", "By", "Size of the write-ahead logs of the open databases.")
DISK_FREE_BYTES = _gauge(
    "memory_disk_free_bytes", "By", "Free space on the volume of the databases.")
ROWS = _gauge(
    "memory_rows", "{row}", "Rows in the open databases, including deleted memories.",
    table=("memories", "revisions", "sessions"))
RUNS_OPEN = _gauge(
    "memory_runs_open", "{run}",
    "Open runs of workflow hosts, in the open databases.")
PASSES = _counter(
    "memory_openwop_passes_total", "{pass}", "Passes over refs, by outcome.",
    kind=("compaction", "distillation", "consolidation"), outcome=("done", "unchanged", "refused"))
COMMITMENTS_FIRED = _counter(
    "memory_commitments_fired_total", "{commitment}",
    "Commitments fired, by condition.",
    condition=("time", "predicate"))
AGENT_ENTRIES = _gauge(
    "memory_agent_entries", "{entry}",
    "Entries of agents' memory in the open databases, including expired ones that have not been "
    "swept yet.", tier=("working", "episodic", "semantic"))
AGENT_EVICTIONS = _counter(
    "memory_agent_evictions_total", "{entry}",
    "Episodic entries evicted because their agents were at capacity.")
AGENT_ARCHIVED = _counter(
    "memory_agent_archived_total", "{entry}",
    "Working entries archived when their tasks ended.")
CAPACITY_REFUSALS = _counter(
    "memory_capacity_refusals_total", "{request}",
    "Writes of agents' memory refused because no room could be made.",
    limit=("working", "episodic"))
SESSIONS_OPEN = _gauge(
    "memory_sessions_open", "{session}",
    "Open sessions, in the open databases.")
PINNED = _gauge(
    "memory_pinned", "{memory}", "Pinned live memories, in the open databases.")
REVIEWS_DUE = _gauge(
    "memory_reviews_due", "{memory}",
    "Live memories past their review date, in the open databases; those due because of their type "
    "are not counted.")
TENANTS_OPEN = _gauge(
    "memory_tenants_open", "{tenant}",
    "Tenants with an open database, including the default one.")
DAMAGED_ROWS = _gauge(
    "memory_damaged_rows", "{row}",
    "Damaged rows, which are not served; at most 100 of each database are counted.")
INDEX_DRIFT = _gauge(
    "memory_index_drift_rows", "{row}",
    "Rows by which the full-text index differed from the memories at the last check. The service "
    "repairs the index at once; please report any value but 0.")
INDEX_PARTITIONS = _gauge(
    "memory_index_partitions", "{partition}", "Partitions of the full-text index.")
EXPIRED = _counter(
    "memory_expired_total", "{memory}",
    "Expired memories that a sweep removed from the full-text index.")
SUPERSEDED = _counter(
    "memory_superseded_total", "{link}", "Links created by saves that supersede memories.")
SWEPT_ROWS = _counter(
    "memory_swept_rows_total", "{row}",
    "Rows and audit lines removed at the end of their retention.",
    kind=("deleted", "expired", "revisions", "idempotency", "audit", "receipts", "events", "log"))
BACKUPS = _counter(
    "memory_backups_total", "{backup}",
    "Scheduled backups, by outcome.",
    outcome=("made", "failed"))
BACKUP_INTERVAL = _gauge(
    "memory_backup_interval_seconds", "s",
    "Maximum age of the newest backup before the next one; 0 without scheduled backups.")
BACKUP_LAST_SUCCESS = _gauge(
    "memory_backup_last_success_timestamp_seconds", "s",
    "Start of the newest backup in the folder, in seconds since 1970; 0 without one.")
BACKUP_BYTES = _gauge("memory_backup_bytes", "By", "Size of the newest backup.")
INFO = _gauge(
    "memory_info", "1", "Version of the service; the value is always 1.", version=(__version__,))
# fmt: on
MEASURES = tuple(it for it in [*globals().values()] if isinstance(it, Measure))  # in this order
