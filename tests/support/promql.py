"""What a query of Prometheus refers to: its metrics, and the labels that it asks them for."""

import re
from dataclasses import dataclass

WORDS = frozenset(
    """
    and or on by bool time sum min max count avg rate increase changes absent vector predict_linear
    histogram_quantile avg_over_time min_over_time max_over_time
    """.split()
)

LABELS = frozenset({"job", "instance", "namespace"})
"""What Prometheus itself adds to all that it scrapes; namespace in a cluster."""

SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"[^\"]*\"")
GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
NAME = re.compile(r"(?<![\w.$])[a-zA-Z_:][\w:]*")
DURATION = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query's metrics, each with the labels of its selectors, and the labels it groups by."""

    metrics: dict[str, set[str]]
    grouping: set[str]


def query_of(expression: str) -> Query:
    """What the expression refers to; whatever is no known word is taken for a metric."""
    metrics: dict[str, set[str]] = {}
    for name, matchers in SELECTOR.findall(expression):
        metrics.setdefault(name, set()).update(MATCHER.findall(matchers))
    grouping = {
        label.strip() for labels in GROUPING.findall(expression) for label in labels.split(",")
    }
    bare = DURATION.sub("", GROUPING.sub("", SELECTOR.sub("", expression)))
    for name in set(NAME.findall(bare)) - WORDS:
        metrics.setdefault(name, set())
    return Query(metrics=metrics, grouping=grouping)
