"""The service's measurements, by name, unit and meaning."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from opentelemetry.trace import INVALID_SPAN, Span

from .. import __version__

ANY: tuple[str, ...] = ()  # of a label's values: few, but not known beforehand


class Kind(StrEnum):
    """How a measurement goes: a sum that only grows, the newest value, or how values spread."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measure:
    """What is measured."""

    name: str
    kind: Kind = Kind.GAUGE
    unit: str
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()  # upper bounds, of a histogram


QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

REQUESTS = Measure(
    name="memory_requests_total",
    kind=Kind.COUNTER,
    unit="{request}",
    help="Requests that were answered.",
    labels={"method": ANY, "route": ANY, "status": ANY},
)
REQUEST_SECONDS = Measure(
    name="memory_request_seconds",
    kind=Kind.HISTOGRAM,
    unit="s",
    help="How long requests took, until the last byte of the answer was handed over.",
    labels={"method": ANY, "route": ANY},
    buckets=QUICK,
)
REQUESTS_IN_FLIGHT = Measure(
    name="memory_requests_in_flight",
    unit="{request}",
    help="Requests that are being answered, the one that asks for this included.",
)
CONTEXT_METHOD = Measure(
    name="memory_context_method_total",
    kind=Kind.COUNTER,
    unit="{memory}",
    help="Memories that agents were reminded of, by how they were found.",
    labels={"method": ("fts5_bm25", "recency")},
)
CONTEXT_ANSWERS = Measure(
    name="memory_context_answers_total",
    kind=Kind.COUNTER,
    unit="{answer}",
    help="Contexts that agents were given: by words, only the newest, nothing, or the newest "
    "because words took too long.",
    labels={"outcome": ("found", "recency", "empty", "degraded")},
)
DEDUP = Measure(
    name="memory_dedup_total",
    kind=Kind.COUNTER,
    unit="{save}",
    help="Saves of observations, by what became of them.",
    labels={"action": ("created", "updated", "deduplicated")},
)
REDACTIONS = Measure(
    name="memory_redactions_total",
    kind=Kind.COUNTER,
    unit="{secret}",
    help="Secrets that were taken out of what was written.",
)
WRITE_QUEUE_DEPTH = Measure(
    name="memory_write_queue_depth",
    unit="{write}",
    help="Writes that wait or are being made.",
)
COMMIT_BATCH_SIZE = Measure(
    name="memory_commit_batch_size",
    kind=Kind.HISTOGRAM,
    unit="{write}",
    help="Writes that shared a commit.",
    buckets=(1, 2, 4, 8, 16, 32, 64),
)
COMMIT_SECONDS = Measure(
    name="memory_commit_seconds",
    kind=Kind.HISTOGRAM,
    unit="s",
    help="How long a batch of writes took, until it was on disk.",
    buckets=QUICK,
)
EVENT_LOOP_LAG = Measure(
    name="memory_event_loop_lag_seconds",
    kind=Kind.HISTOGRAM,
    unit="s",
    help="By how much a wake-up of the event loop came late, looked at once a second.",
    buckets=QUICK,
)
DATABASE_BYTES = Measure(
    name="memory_database_bytes",
    unit="By",
    help="Size of the databases that are open.",
)
WAL_BYTES = Measure(
    name="memory_wal_bytes",
    unit="By",
    help="Size of their write-ahead logs.",
)
DISK_FREE_BYTES = Measure(
    name="memory_disk_free_bytes",
    unit="By",
    help="Space that is left where the databases lie.",
)
ROWS = Measure(
    name="memory_rows",
    unit="{row}",
    help="Rows of the databases that are open, deleted memories included.",
    labels={"table": ("memories", "revisions", "sessions")},
)
SESSIONS_OPEN = Measure(
    name="memory_sessions_open",
    unit="{session}",
    help="Sessions that have not ended, in the databases that are open.",
)
TENANTS_OPEN = Measure(
    name="memory_tenants_open",
    unit="{tenant}",
    help="Tenants whose databases are open, the default one included.",
)
INDEX_DRIFT = Measure(
    name="memory_index_drift_rows",
    unit="{row}",
    help="By how many rows the full-text index was out of line with the memories, at the last "
    "look. It is mended at once; anything but 0 is worth a report.",
)
INDEX_PARTITIONS = Measure(
    name="memory_index_partitions",
    unit="{partition}",
    help="Partitions of the full-text index.",
)
SWEPT_ROWS = Measure(
    name="memory_swept_rows_total",
    kind=Kind.COUNTER,
    unit="{row}",
    help="Rows and audit lines that were removed as they were over their time.",
    labels={"kind": ("deleted", "revisions", "idempotency", "audit", "receipts")},
)
BACKUPS = Measure(
    name="memory_backups_total",
    kind=Kind.COUNTER,
    unit="{backup}",
    help="Backups that the service was to make by itself, by what became of them.",
    labels={"outcome": ("made", "failed")},
)
BACKUP_INTERVAL = Measure(
    name="memory_backup_interval_seconds",
    unit="s",
    help="How old the newest backup may get before the next is made; 0 where the service makes "
    "none.",
)
BACKUP_LAST_SUCCESS = Measure(
    name="memory_backup_last_success_timestamp_seconds",
    unit="s",
    help="When the newest backup in the folder was begun, in seconds since 1970; 0 where there "
    "is none.",
)
BACKUP_BYTES = Measure(
    name="memory_backup_bytes",
    unit="By",
    help="Size of the newest backup.",
)
INFO = Measure(
    name="memory_info",
    unit="1",
    help="The version of the service; the value is 1.",
    labels={"version": (__version__,)},
)
MEASURES = (
    REQUESTS, REQUEST_SECONDS, REQUESTS_IN_FLIGHT, CONTEXT_METHOD, CONTEXT_ANSWERS, DEDUP,
    REDACTIONS, WRITE_QUEUE_DEPTH, COMMIT_BATCH_SIZE, COMMIT_SECONDS, EVENT_LOOP_LAG,
    DATABASE_BYTES, WAL_BYTES, DISK_FREE_BYTES, ROWS, SESSIONS_OPEN, TENANTS_OPEN, INDEX_DRIFT,
    INDEX_PARTITIONS, SWEPT_ROWS, BACKUPS, BACKUP_INTERVAL, BACKUP_LAST_SUCCESS, BACKUP_BYTES,
    INFO,
)  # fmt: skip


class Sink(Protocol):
    """Where measurements go. `labels` are the values of the measure's labels, in its order."""

    def add(self, measure: Measure, amount: float, labels: Sequence[str], span: Span) -> None:
        """Let a counter grow; the span is one in which it did."""

    def record(self, measure: Measure, value: float, labels: Sequence[str], span: Span) -> None:
        """Add a value to a histogram; the span is where it was measured."""

    def hold(self, measure: Measure, value: float, labels: Sequence[str]) -> None:
        """Let this be a gauge's value from now on."""


class Metrics:
    """The measurements of one service. What can be looked up is looked up when it is asked for."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks: tuple[Sink, ...] = ()
        self._shown: dict[Measure, float] = {}
        self._looks: dict[Measure, Callable[[], float]] = {}
        for sink in sinks:
            self.join(sink)

    def join(self, sink: Sink) -> None:
        """Tell the sink, too, from now on."""
        sink.hold(INFO, 1, (__version__,))
        self._sinks += (sink,)

    def count(
        self, measure: Measure, *labels: str, by: float = 1, span: Span = INVALID_SPAN
    ) -> None:
        """Let a counter grow."""
        for sink in self._sinks:
            sink.add(measure, by, labels, span)

    def observe(
        self, measure: Measure, value: float, *labels: str, span: Span = INVALID_SPAN
    ) -> None:
        """Add a value to a histogram."""
        for sink in self._sinks:
            sink.record(measure, value, labels, span)

    def committed(self, changes: int, seconds: float) -> None:
        """Add a commit."""
        self.observe(COMMIT_BATCH_SIZE, changes)
        self.observe(COMMIT_SECONDS, seconds)

    def show(self, measure: Measure, value: float, *labels: str) -> None:
        """Let this be a gauge's value from now on."""
        self._shown[measure] = value
        for sink in self._sinks:
            sink.hold(measure, value, labels)

    def shown(self, measure: Measure) -> float:
        """The value of a gauge without labels; 0 before there is one."""
        return self._shown.get(measure, 0)

    def look_up(self, measure: Measure, look: Callable[[], float]) -> None:
        """Let a gauge without labels be what `look` answers when it is asked for."""
        self._looks[measure] = look

    def refresh(self) -> None:
        """Look up what is looked up."""
        for measure, look in self._looks.items():
            self.show(measure, look())
