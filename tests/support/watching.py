"""What an operator watches: the queries of the dashboard, and the alerts."""

import json
from collections.abc import Iterator
from typing import Any

from .manifests import DEPLOY, manifest

DASHBOARD = DEPLOY / "grafana" / "agentops-memory.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"


def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    return document


def panels() -> list[dict[str, Any]]:
    """The panels that show something, without the headings of rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def alerts() -> list[dict[str, Any]]:
    (group,) = manifest(ALERTS)["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def queries() -> Iterator[tuple[str, str]]:
    """Each query of the dashboard and of the alerts, with the name of what asks it."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for annotation in dashboard()["annotations"]["list"]:
        if "expr" in annotation:
            yield annotation["name"], annotation["expr"]
    for alert in alerts():
        yield alert["alert"], alert["expr"]
