"""Who may import whom, and where SQL may stand."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "agentops_memory"
SERVICE = Path(__file__).parents[1] / "service" / PACKAGE

PURE_DOMAIN = {
    "domain.access", "domain.errors", "domain.examination", "domain.explain",
    "domain.import_ports", "domain.instants", "domain.model", "domain.neighbours",
    "domain.ports", "domain.query", "domain.retention", "domain.retention_ports",
    "domain.spelling", "domain.store_model",
    "domain.summary", "domain.techniques", "domain.text", "domain.uids",
}  # fmt: skip

# part -> what it may import of the package; a name with a dot covers what lies below it
ALLOWED: dict[str, set[str]] = {
    "domain": {"domain"},
    "storage": {"storage", "sanitizing", *PURE_DOMAIN, "domain.keys", "domain.redaction",
                "domain.tenants", ""},
    "telemetry": {"telemetry", "sanitizing", "domain.errors", "domain.model", "domain.once",
                  "domain.ports", "domain.memories", "domain.recall", "domain.redaction",
                  "domain.store_model", ""},
    "settings": {"domain.retention", "domain.techniques", "mcp.profile", "rates", "setting_kinds",
                 "variables"},
    "variables": {"mcp.profile", "origins", "rates", "setting_kinds"},
    "origins": set(),
    "sanitizing": {"domain.errors"},
    "headers": {"origins"},
    "rates": {"domain.errors"},
    "setting_kinds": {"domain.techniques"},
    "identity": {"domain", "origins", "settings"},
    "framing": set(),
    "limits": {"framing", "headers"},
    "api.agentops": {"api.agentops", "api.door", "api.http", "api.documents", "api.endpoint",
                     "api.ids", "api.once", "api.openapi", "domain", "telemetry"},
    "api.memory_stores": {"api.memory_stores", "api.door", "api.http", "api.endpoint", "api.ids",
                          "api.once", "api.openapi", "api.times", "domain", "telemetry"},
    "api.anthropic_stores": {"api.anthropic_stores", "api.door", "api.http", "api.documents",
                             "api.endpoint", "api.ids", "api.once", "api.openapi", "api.times",
                             "domain", "telemetry"},
    "api.page": {"api.page"},
    "api": {"api", "domain", "telemetry"},
    "answers": {"answers"},
    "client": {"client", "answers", ""},
    "runtime": {"runtime", "client"},
    "runtime.messages": {"client"},
    "runtime.unsent": set(),
    "runtime.trimming": {"runtime.messages"},
    "runtime.checkpoint": set(),
    "runtime.document": {"runtime.messages", "runtime.unsent", "client"},
    "runtime.working_memory": {"runtime", "client"},
    "runtime.injection": {"client"},
    "runtime.spans": {"client", ""},
    "runtime.outbox": {"runtime.spans", "runtime.unsent", "client"},
    "runtime.reminder": {"runtime", "client"},
    "runtime.backlog": {"runtime", "client"},
    "runtime.report": {"runtime.unsent", "client"},
    "runtime.session": {"runtime", "client"},
    "runtime.hooks": {"runtime.hooks", "runtime.kinds", "runtime.messages"},
    "runtime.hooks.faults": set(),
    "runtime.hooks.nodes": {"runtime.hooks.faults"},
    "runtime.hooks.patterns": {"runtime.hooks.faults"},
    "runtime.hooks.rules": {"runtime.hooks.patterns", "runtime.messages"},
    "runtime.kinds": set(),
    "local": {"local", "answers", "api.agentops", "api.http", "domain", "telemetry"},
    # What speaks to the port knows nothing of the domain but its limits.
    "mcp": {"mcp", "answers", "domain.screen", "domain.query", ""},
    "mcp.profile": set(),
    # What lies behind an address of the service is part of its APIs.
    "mcp.http": {"mcp", "api.documents", "api.door", "api.http", "domain", "telemetry"},
    "mcp.lines": {"api.documents", "domain.errors"},
    "mcp.connections": {"mcp", "answers.port", "api.door", "domain.model"},
    "mcp.routes": {"mcp.http", "api.endpoint", "api.openapi", "domain"},
    "mcp.transport": {"mcp", "api.http"},
    "about": {"api", "domain", ""},
    "app": {"mcp.routes", "about", "api", "domain", "health", "sanitizing", "telemetry"},
    "figures": {"background", "domain", "telemetry"},
    "health": {"api", "domain", "figures", "telemetry"},
    "scrape": {"api", "domain", "figures"},
    "background": {"domain.errors", "sanitizing"},
    "backing_up": {"background", "sanitizing", "storage", "telemetry"},
    "sweep": {"background", "domain", "erasing", "telemetry"},
    "mending": {"background", "domain", "erasing"},
    "ending": {"background", "domain", "erasing"},
    "erasing": {"background", "domain", "sanitizing"},
    "importing": {"background", "domain", "erasing", "sanitizing"},
    "keeping": {"background", "domain", "erasing", "steady", "telemetry"},
    "steady": set(),
    "housekeeping": {"backing_up", "domain", "ending", "erasing", "importing", "keeping",
                     "mending", "settings", "steady", "storage", "sweep", "telemetry"},
    "compose": {"app", "erasing", "figures", "health", "housekeeping", "identity", "local", "mcp",
                "scrape", "api", "domain", "rates", "storage", "settings", "telemetry", "turn"},
    "turn": {"storage"},
    "server": {"app", "compose", "headers", "limits", "origins", "settings", "telemetry", ""},
    "backups_examined": {"backing_up", "domain.examination", "settings", "storage"},
    "doctor": {"backups_examined", "domain", "environment", "identity", "sanitizing",
               "settings", "storage", ""},
    "environment": {"domain.examination", "settings"},
    "cli": {"cli", "answers", "client", "doctor", "environment", "local", "mcp", "server",
            "compose", "sanitizing", "settings", "setting_kinds", "telemetry", "storage",
            "domain", "api.agentops.exports", "api.documents", "api.ids", ""},
    "__main__": {"cli"},
    "__init__": set(),
}  # fmt: skip

POSSESSIVE = re.compile(r"(?<!\\)\)(?:[*+?]|\{[0-9]*,?[0-9]*\})\+")  # of a group
STATEMENT = re.compile(
    r"\b(SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+TABLE|PRAGMA\s)",
    re.DOTALL,
)


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Each module of the package: its dotted name below it, and its tree."""
    for path in sorted(SERVICE.rglob("*.py")):
        parts = path.relative_to(SERVICE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        yield name, ast.parse(path.read_text("utf-8"))


def imports(name: str, tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """What a module imports: a dotted name, and whether it is ours (below the package)."""
    is_package = (SERVICE / Path(*name.split("."))).is_dir()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or "", False
        elif isinstance(node, ast.ImportFrom):
            here = name.split(".") + ([""] if is_package else [])
            base = [step for step in here[: -node.level] if step]
            target = [*base, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                full = ".".join([*target, alias.name])
                yield (full if _is_module(full) else ".".join(target)), True


def _is_module(name: str) -> bool:
    path = SERVICE / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def part(name: str) -> str:
    """The part of the architecture that a module belongs to."""
    return max((p for p in ALLOWED if name == p or name.startswith(p + ".")), key=len)


def is_allowed(target: str, allowed: set[str]) -> bool:
    return any(target == a or (a and target.startswith(a + ".")) for a in allowed)


MODULES = dict(modules())


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_what_its_part_may(name: str) -> None:
    ours = [target for target, is_ours in imports(name, MODULES[name]) if is_ours]

    assert [target for target in ours if not is_allowed(target, ALLOWED[part(name)])] == []


@pytest.mark.parametrize("name", [name for name in MODULES if part(name) == "domain"])
def test_the_domain_imports_the_standard_library_only(name: str) -> None:
    theirs = [target for target, is_ours in imports(name, MODULES[name]) if not is_ours]

    assert [t for t in theirs if t.split(".")[0] not in sys.stdlib_module_names] == []


@pytest.mark.parametrize("name", MODULES)
def test_imports_inside_the_package_are_relative(name: str) -> None:
    theirs = [target for target, is_ours in imports(name, MODULES[name]) if not is_ours]

    assert [target for target in theirs if target.split(".")[0] == PACKAGE] == []


@pytest.mark.parametrize("name", [name for name in MODULES if part(name) != "storage"])
def test_sql_stands_in_storage_alone(name: str) -> None:
    texts = [
        node.value
        for node in ast.walk(MODULES[name])
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]

    assert [text for text in texts if STATEMENT.search(text)] == []


@pytest.mark.parametrize("name", MODULES)
def test_no_pattern_repeats_a_group_possessively(name: str) -> None:
    """Python before 3.11.5 takes too much then (gh-106052); an atomic group around it does not."""
    texts = [
        node.value
        for node in ast.walk(MODULES[name])
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]

    assert [text for text in texts if POSSESSIVE.search(text)] == []


def test_the_rules_see_a_breach() -> None:
    breach = ast.parse("import pydantic\nfrom ..storage.sqlite import engine\n")

    found = list(imports("domain.model", breach))

    assert found == [("pydantic", False), ("storage.sqlite.engine", True)]
    assert not is_allowed("storage.sqlite.engine", ALLOWED["domain"])
    assert STATEMENT.search("SELECT id\n FROM memories")
    assert all(map(POSSESSIVE.search, ["(?:a)++", "(a)*+", "(a)?+", "(a){0,5}+", "(a){2,}+"]))


def test_one_api_knows_no_other() -> None:
    apis = [p for p in ALLOWED if p.startswith("api.")]

    for api in apis:
        assert not any(other != api and is_allowed(other, ALLOWED[api]) for other in apis), api
