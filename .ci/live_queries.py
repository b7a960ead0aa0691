"""The queries of the dashboard and of the alerts, put to a Prometheus that watches a service.

`.ci/live_queries.py SERVICE PROMETHEUS`: the URLs of a service without keys, and
of a Prometheus that scrapes it each second. Exits with a sentence about the first that is wrong.
"""

import json
import sys
import time
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tests.support.manifests import alerts, panels, queries, query_of

DISK_FILLS = "AgentopsMemoryDiskFillsSoon"  # as the machine's own may, for some seconds
TIMEOUT = 60.0  # seconds
ENOUGH = "count_over_time(memory_info[1h]) > 5"  # a rate needs two, and what is new a first one
CHOSEN = {"$__rate_interval": "5s", "$namespace": ".*", "$job": ".*", "$instance": ".*"}
TRAFFIC: tuple[tuple[str, dict[str, object] | None], ...] = (
    ("/observations", {
        "session_id": "watched", "project": "watched", "type": "config", "title": "Staging",
        "content": "postgres://app:correct-horse@db/app is where staging lies.",
    }),
    ("/context?project=watched&query=Where+does+staging+lie", None),
    ("/search?project=watched&q=staging", None),
    ("/sessions/watched/end", {"messages": [{"role": "user", "content": "Where is staging?"}]}),
    ("/health", None),
    ("/nothing", None),
)  # fmt: skip


def main(service: str, prometheus: str) -> None:
    use(service)
    wait_for(prometheus, ENOUGH)
    use(service)
    time.sleep(2)  # two scrapes
    known = set(asked(f"{prometheus}/api/v1/label/__name__/values"))
    shown = {panel["title"] for panel in panels()}
    for name, expression in queries():
        unknown = set(query_of(expression).metrics) - known
        if unknown:
            sys.exit(f"{name}: the service does not measure {', '.join(sorted(unknown))}.")
        if not result(prometheus, expression) and name in shown:
            sys.exit(f"{name}: nothing to show for {expression}")
    for rule in asked(f"{prometheus}/api/v1/rules?type=alert")["groups"][0]["rules"]:
        calm = {"inactive", "pending"} if rule["name"] == DISK_FILLS else {"inactive"}
        if rule["health"] != "ok" or rule["state"] not in calm:
            sys.exit(
                f"{rule['name']}: {rule['health']}, {rule['state']} {rule.get('lastError', '')}"
            )
    sys.stdout.write(f"{len(list(queries()))} queries, {len(alerts())} of them alerts\n")


def use(service: str) -> None:
    """Ask the service for a little of each; a refusal is traffic, too."""
    for path, body in TRAFFIC:
        data = None if body is None else json.dumps(body).encode()
        try:
            urlopen(Request(service + path, data=data), timeout=15).close()  # noqa: S310 - ours
        except HTTPError as refusal:
            refusal.close()


def wait_for(prometheus: str, expression: str) -> None:
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            if result(prometheus, expression):
                return
        except OSError:  # it starts
            pass
        if time.monotonic() > end:
            sys.exit(f"In {TIMEOUT:.0f} s Prometheus had nothing for {expression}.")
        time.sleep(0.5)


def result(prometheus: str, expression: str) -> list[Any]:
    """What the query finds now, with the dashboard's variables as they are when all is chosen."""
    for variable, value in CHOSEN.items():
        expression = expression.replace(variable, value)
    found: list[Any] = asked(f"{prometheus}/api/v1/query?{urlencode({'query': expression})}")[
        "result"
    ]
    return found


def asked(url: str) -> Any:
    try:
        with urlopen(url, timeout=15) as answer:  # noqa: S310 - ours
            return json.load(answer)["data"]
    except HTTPError as refusal:
        sys.exit(f"{url}: {refusal.read().decode()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
