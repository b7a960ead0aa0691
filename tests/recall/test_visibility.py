"""Who sees global memories: every read, with and without a project and a scope."""

from ..support.requirements import requirement
from ..support.service import Service

# Two projects, a and b; in each one memory of a scope: p(roject), g(lobal), t(eam).
ALL = {"ap", "ag", "at", "bp", "bg", "bt"}
OWN = {"ap", "ag", "at"}
GLOBALS = {"ag", "bg"}

SEEN = {
    "/search?q=word": {
        "": ALL, "project=a": OWN | {"bg"}, "scope=global": GLOBALS,
        "project=a&scope=global": GLOBALS, "project=none&scope=global": GLOBALS,
        "project=none": GLOBALS, "scope=team": {"at", "bt"}, "project=a&scope=team": {"at"},
        "project=a&scope=project": {"ap"},
    },
    "/observations/recent?limit=9": {
        "": ALL, "project=a": OWN, "scope=global": GLOBALS, "project=a&scope=global": GLOBALS,
        "project=none": set(), "scope=team": {"at", "bt"}, "project=a&scope=team": {"at"},
        "project=a&scope=project": {"ap"},
    },
    "/context?limit=9": {
        "": GLOBALS, "project=a": OWN | {"bg"}, "scope=global": GLOBALS,
        "project=a&scope=global": GLOBALS, "project=none": GLOBALS, "scope=team": set(),
        "project=a&scope=team": {"at"}, "project=a&scope=project": {"ap"},
    },
    "/export?": {"": ALL, "project=a": OWN, "project=none": set()},
}  # fmt: skip
SEEN["/context?limit=9&query=word"] = SEEN["/context?limit=9"]
SEEN["/context?limit=9&query=unheard"] = SEEN["/context?limit=9"]


@requirement("agentops:global:visibility", "agentops:fault:global-unread")
def test_each_read_sees_the_global_memories_that_it_should(service: Service) -> None:
    for project in "ab":
        for scope in ("project", "global", "team"):
            text = {"title": project + scope[0], "project": project, "scope": scope}
            service.save(f"word of {project}", **text)

    for path, seen in SEEN.items():
        for query, titles in seen.items():
            assert _titles(service, f"{path}&{query}") == titles, (path, query)


def _titles(service: Service, path: str) -> set[str]:
    answer = service.http.get(path).json()
    if isinstance(answer, dict):
        answer = answer.get("recent_observations") or answer.get("observations") or []
    return {row["title"] for row in answer}
