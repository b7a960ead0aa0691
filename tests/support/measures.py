"""The measures that a scrape of the service brings, each with its labels."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

from agentops_memory.telemetry import metrics

from .service import Service

Sample = tuple[str, frozenset[tuple[str, str]]]

PROCESS = (
    "process_cpu_seconds_total", "process_open_fds", "process_resident_memory_bytes",
    "process_start_time_seconds",
)  # fmt: skip

MEASURES = {it.name: (it.kind, tuple(it.labels)) for it in metrics.MEASURES}


def series() -> dict[str, frozenset[str]]:
    """Each name that Prometheus stores, with the labels that the service gives it."""
    names: dict[str, frozenset[str]] = {name: frozenset() for name in ("up", *PROCESS)}
    for name, (kind, labels) in MEASURES.items():
        if kind is metrics.Kind.HISTOGRAM:
            names[f"{name}_bucket"] = frozenset({*labels, "le"})
            names[f"{name}_sum"] = names[f"{name}_count"] = frozenset(labels)
        else:
            names[name] = frozenset(labels)
    return names


def measured(service: Service, client: httpx.Client | None = None) -> dict[Sample, float]:
    """Every sample of a scrape: its name and labels, and its value."""
    text = (client or service.http).get("/metrics").raise_for_status().text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key(name: str, **labels: str) -> Sample:
    return name, frozenset(labels.items())
