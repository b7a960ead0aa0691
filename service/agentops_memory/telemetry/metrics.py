"""Metrics: their names, units and meanings, where they are sent, and counting of operations."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from enum import StrEnum
from functools import partial
from itertools import product
from math import isnan
from sys import modules
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from .. import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Span


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


TEXT = "text/plain; version=0.0.4; charset=utf-8"

Recorder: TypeAlias = "Callable[[float, tuple[str, ...], Span | None], None]"
"""Records a value, with the values of the metric's labels in its order, and a span if any.
The value is added to a counter or a histogram, or replaces that of a gauge.
"""
Sink = Callable[[Measure], Recorder]
"""Returns the recorder of a metric: a destination of measurements."""


class SlowRequest(NamedTuple):
    """A slow request, for people who look for the cause."""

    at: float  # when it was answered, in seconds since 1970
    method: str
    route: str
    status: int
    seconds: float
    tenant: str  # empty if the caller was not admitted


SLOW, SLOW_KEPT = 0.25, 50  # seconds of a slow request; how many of the newest are kept


class Metrics:
    """The metrics of one service; gauges are computed on demand where possible."""

    def __init__(self) -> None:
        self._recorders: dict[Measure, list[Recorder]] = {measure: [] for measure in MEASURES}
        self._values: dict[Measure, float] = {}
        self._counts: dict[tuple[Measure, tuple[str, ...]], tuple[float, Span | None]] = {}
        self._lock = Lock()
        self._looks: dict[Measure, Callable[[], float]] = {}
        self.slow: deque[SlowRequest] = deque(maxlen=SLOW_KEPT)
        self.in_flight = 0  # requests

    def join(self, sink: Sink) -> None:
        """Send measurements to a sink."""
        for measure, recorders in self._recorders.items():
            recorders.append(sink(measure))
        self._recorders[INFO][-1](1, (__version__,), current_span())

    def count(
        self, measure: Measure, *labels: str, by: float = 1, span: "Span | None" = None
    ) -> None:
        """Count for the next scrape, with the newest sampled span."""
        with self._lock:
            count, newest = self._counts.get((measure, labels), (0, None))
            self._counts[measure, labels] = count + by, _sampled(span) or newest

    def observe(
        self, measure: Measure, value: float, *labels: str, span: "Span | None" = None
    ) -> None:
        for record in self._recorders[measure]:
            record(value, labels, _sampled(span))

    def note_slow(self, method: str, route: str, status: int, seconds: float, tenant: str) -> None:
        if seconds >= SLOW:
            self.slow.append(SlowRequest(time.time(), method, route, status, seconds, tenant))

    def committed(self, changes: int, seconds: float) -> None:
        self.observe(COMMIT_BATCH_SIZE, changes)
        self.observe(COMMIT_SECONDS, seconds)

    def fired(self, condition: str, commitments: int) -> None:
        self.count(COMMITMENTS_FIRED, condition, by=commitments)

    def show(self, measure: Measure, value: float, *labels: str) -> None:
        self._values[measure] = value
        for record in self._recorders[measure]:
            record(value, labels, current_span())

    def value_of(self, measure: Measure) -> float:
        """Return the value of a gauge without labels, or 0 before it has one."""
        return self._values.get(measure, 0)

    def count_context(
        self, methods: Sequence[str], span: "Span | None", *, is_degraded: bool = False
    ) -> None:
        """Count a context, by the methods that found its memories."""
        found = set(methods)
        for method in found:
            self.count(CONTEXT_METHOD, method, by=methods.count(method), span=span)
        matched = "found" if found - {"recency"} else "recency" if found else "empty"
        self.count(CONTEXT_ANSWERS, "degraded" if is_degraded else matched, span=span)

    def look_up(self, measure: Measure, look: Callable[[], float]) -> None:
        """Compute a gauge without labels by `look` whenever it is read."""
        self._looks[measure] = look

    def refresh(self) -> None:
        for measure, look in self._looks.items():
            self.show(measure, look())
        self.settle()

    def settle(self) -> None:
        """Hand the counts over to the sinks."""
        with self._lock:
            counts, self._counts = self._counts, {}
        for (measure, labels), (by, span) in counts.items():
            for record in self._recorders[measure]:
                record(by, labels, span)


def _sampled(span: "Span | None") -> "Span | None":
    return span if span is not None and span.get_span_context().trace_flags.sampled else None


def instruments(meter: "Meter") -> Sink:
    # Imported here, as only processes that send need it.
    from opentelemetry.trace import INVALID_SPAN, set_span_in_context  # noqa: PLC0415

    def recorder(measure: Measure) -> Recorder:
        more = {"explicit_bucket_boundaries_advisory": measure.buckets} if measure.buckets else {}
        made = getattr(meter, f"create_{measure.kind}")(
            measure.name, measure.unit, measure.help, **more
        )
        record = getattr(made, {"counter": "add", "gauge": "set"}.get(measure.kind, "record"))

        def send(value: float, labels: tuple[str, ...], span: "Span | None") -> None:
            if not isnan(value):  # NaN: the value is unknown
                named = dict(zip(measure.labels, labels, strict=True))
                record(value, named, set_span_in_context(span or INVALID_SPAN))

        return send

    return recorder


class Prometheus:
    """A sink that keeps measurements until Prometheus scrapes them."""

    def __init__(self) -> None:
        # Imported here, as commands do not need it.
        import prometheus_client  # noqa: PLC0415
        from prometheus_client.openmetrics import exposition  # noqa: PLC0415

        self._client, self._open_metrics = prometheus_client, exposition
        # Otherwise each counter would have another series.
        self._client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = self._client.CollectorRegistry()
        self._client.ProcessCollector(registry=self._registry)

    def __call__(self, measure: Measure) -> Recorder:
        kind: Any = getattr(self._client, measure.kind.title())
        more = {"buckets": measure.buckets} if measure.buckets else {}
        labels = tuple(measure.labels)
        made = kind(measure.name, measure.help, labels, registry=self._registry, **more)
        for values in product(*measure.labels.values()) if labels else ():
            made.labels(*values)  # known series begin at 0, so that a first event is an increase

        def record(value: float, labels: tuple[str, ...], span: "Span | None") -> None:
            series = made.labels(*labels) if labels else made
            match measure.kind:
                case Kind.GAUGE:
                    series.set(value)
                case Kind.COUNTER:
                    series.inc(value, trace_ids(span) or None)
                case Kind.HISTOGRAM:
                    series.observe(value, trace_ids(span) or None)

        return record

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics as text and its type: OpenMetrics with exemplars if accepted."""
        if "application/openmetrics-text" in accept:
            writer = self._open_metrics
            return writer.generate_latest(self._registry), writer.CONTENT_TYPE_LATEST
        return self._client.generate_latest(self._registry), TEXT


def current_span() -> "Span | None":
    """Return the current span, or None if OpenTelemetry (10 ms) has not been imported."""
    # While the module is being imported, it may log or another thread may, before this exists.
    current = getattr(modules.get("opentelemetry.trace"), "get_current_span", None)
    return current() if current else None


def trace_ids(span: "Span | None") -> dict[str, str]:
    """Return a span's ids for a log line or an exemplar; none for an invalid span."""
    if span is None or not (context := span.get_span_context()).is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


CURRENT: ContextVar[Metrics | None] = ContextVar("metrics", default=None)
"""The metrics of the service whose operation runs; None outside of an operation."""


def count(measure: Measure, *labels: str, by: float = 1) -> None:
    """Add to a counter of the current operation's service, unless `by` is 0."""
    metrics = CURRENT.get()
    if metrics is not None and by:
        metrics.count(measure, *labels, by=by, span=current_span())
