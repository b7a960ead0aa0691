"""What spans of agents' memory are called, and what none of them may tell.

`quill` stands in keys, `tagged` in tags, `saffron` in values, titles and payloads.
"""

from .otlp import Collector

PREFIX = "openintent_"
SECRETS = ("quill", "tagged", "saffron")
OF_INTENTS = ("/api/v1/intents", "/api/v1/tasks", "/api/v1/coordinators")

Paths = dict[str, dict[str, dict[str, str]]]


def served(paths: Paths) -> set[str]:
    """The operations of agents' memory that the service describes."""
    names = {it["operationId"] for methods in paths.values() for it in methods.values()}
    return {name for name in names if name.startswith(PREFIX)}


def of_intents(paths: Paths) -> set[str]:
    """Those of them that are about intents."""
    return served({path: it for path, it in paths.items() if path.startswith(OF_INTENTS)})


def secrets(collector: Collector) -> set[str]:
    """The words of keys, tags and values that any span tells, in any attribute or event."""
    return {word for word in SECRETS if word in repr(collector.spans)}
