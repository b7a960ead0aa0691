"""The measures that a scrape of the service brings, each with its labels."""

PROCESS = (
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
)

MEASURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "memory_requests_total": ("counter", ("method", "route", "status")),
    "memory_request_seconds": ("histogram", ("method", "route")),
    "memory_requests_in_flight": ("gauge", ()),
    "memory_context_method_total": ("counter", ("method",)),
    "memory_context_answers_total": ("counter", ("outcome",)),
    "memory_dedup_total": ("counter", ("action",)),
    "memory_redactions_total": ("counter", ()),
    "memory_write_queue_depth": ("gauge", ()),
    "memory_commit_batch_size": ("histogram", ()),
    "memory_commit_seconds": ("histogram", ()),
    "memory_event_loop_lag_seconds": ("histogram", ()),
    "memory_database_bytes": ("gauge", ()),
    "memory_wal_bytes": ("gauge", ()),
    "memory_disk_free_bytes": ("gauge", ()),
    "memory_rows": ("gauge", ("table",)),
    "memory_sessions_open": ("gauge", ()),
    "memory_tenants_open": ("gauge", ()),
    "memory_index_drift_rows": ("gauge", ()),
    "memory_index_partitions": ("gauge", ()),
    "memory_info": ("gauge", ("version",)),
}


def series() -> dict[str, frozenset[str]]:
    """Each name that Prometheus stores, with the labels that the service gives it."""
    names: dict[str, frozenset[str]] = {name: frozenset() for name in ("up", *PROCESS)}
    for name, (kind, labels) in MEASURES.items():
        if kind == "histogram":
            names[f"{name}_bucket"] = frozenset({*labels, "le"})
            names[f"{name}_sum"] = names[f"{name}_count"] = frozenset(labels)
        else:
            names[name] = frozenset(labels)
    return names
