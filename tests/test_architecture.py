"""Who may import whom."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

SERVICE = Path(__file__).parents[1] / "service" / "agentops_memory"
CLIENT = SERVICE.parent / "client" / "agentops_memory_client"

NOUNS = {
    "domain",
    "domain.model",
    "domain.model.hosts",
    "domain.ports",
    "domain.text",
}  # and errors

# part -> what it may import of ours: the modules of a folder, "x.*" for those below it too. The
# package of the client, which knows none of the server's, stands as "client".
ALLOWED: dict[str, set[str]] = {
    "__main__": {"cli"},
    "cli": {"*"},
    "server": {"compose", "domain", "settings", "telemetry", "web", ""},
    "compose": {"api.*", "backend", "domain.*", "files", "jobs", "local", "mcp", "settings",
                "storage.*", "telemetry", "web", "wiring"},
    "backend": {"domain.*", "files", "settings", "storage.*"},
    "wiring": {"api.agentops", "api.kit", "backend", "domain.*", "files", "local", "settings",
               "telemetry"},
    "web": {"api.*", "domain", "domain.model", "domain.ports", "domain.secrets", "settings",
            "telemetry", ""},
    "jobs": {"backup", "domain.*", "files", "settings", "storage.*", "telemetry"},
    "doctor": {"backend", "backup", "domain.*", "files", "jobs", "settings", "storage.*",
               "web", ""},
    "backup": {"domain", "domain.model", "domain.secrets", "domain.text", "files", "storage.*", ""},
    "local": {"api.agentops", "api.kit", "client.contract", "domain.*", "telemetry"},
    "mcp": {"api.kit", "client.contract", "domain.*", "settings", "telemetry", ""},
    "api": {"api.kit", "domain.*", "telemetry"},
    "api.agentops": {"api.kit", "client.contract", "domain.*", "telemetry"},
    "api.docs_page": set(),
    "api.openwop": {"api.kit", "api.openwop.*", "domain.*", "telemetry"},
    "api.openwop.memory": {"api.kit", "domain.*", "telemetry"},
    "api.openwop.seams": {"api.kit", "api.openwop.*", "domain.*", "telemetry"},
    **{
        f"api.openwop.{family}": {"api.kit", "api.openwop.memory", "domain.*", "telemetry"}
        for family in ("passes", "commitments", "proposals")
    },
    "settings": {"client.contract", "domain", "domain.model", "domain.text"},
    "storage": {"storage.*", "domain.secrets", "files", "", *NOUNS},
    "storage.sql": NOUNS,
    "storage.sql.agents": {"storage.sql", *NOUNS},
    "storage.sql.hosts": {"storage.sql", *NOUNS},
    "files": {"domain", "domain.model", "domain.secrets", "domain.text"},
    "telemetry": {"domain.*", "storage.sql", "storage.sql.*", ""},
    "domain": {"domain.*", "storage.sql", "storage.sql.*"},
    "client": {"client.contract", "client.openwop", "client.transport"},
    "client.contract": set(),
    "client.transport": {"client.contract"},
    "client.openwop": {"client.contract", "client.transport"},
    "client.runtime": {"client", "client.contract", "client.runtime.*", "client.transport"},
    "__init__": set(),
}  # fmt: skip

POSSESSIVE = re.compile(r"(?<!\\)\)(?:[*+?]|\{[0-9]*,?[0-9]*\})\+")  # of a group

# What only the table of traits, and its SQL, may ask or spell out.
OF_A_KIND = re.compile(
    r"\bis_store\b|(==|!=|\bis|\bin|\bnot)\s+(NO_PROJECT|SpaceKind)\b|\bNO_PROJECT\s+(==|!=|is\b)"
    r"|\b(space\.kind|SpaceKind\.\w+)\s+(==|!=|is\b|in\b)|\bs\.kind\s*(=|<>|IN\b|IS\b)"
    r"|\b(project|session_id)\s+IS\b"
)
ASKING = (
    "if space.is_store:", "space.project == NO_PROJECT", "space.kind is SpaceKind.STORE",
    "NO_PROJECT != project", "s.project IS NULL", "m.session_id IS NOT NULL", "s.kind = 'store'",
)  # fmt: skip
# What only the predicate of liveness, and its SQL, may ask; the upgrade reads the original's file.
OF_LIVENESS = re.compile(
    r"\bdeleted_at\s+IS\b|(?<!:)\bexpires_at\s*(<|>|=).*\bnow\b(?!\s*\+)", re.IGNORECASE
)
LIVE = {"domain.model.memory", "storage.sql.liveness", "storage.sqlite.schema.upgrade"}
KINDS = {"domain.model.kinds", "storage.sql.kinds"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Each module of both packages: its dotted name below it, and its tree."""
    for package, prefix in ((SERVICE, ()), (CLIENT, ("client",))):
        for path in sorted(package.rglob("*.py")):
            parts = [*prefix, *path.relative_to(package).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
            yield name, ast.parse(path.read_text("utf-8"))


def imports(name: str, tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """What a module imports: a dotted name, and whether it is ours (below a package of ours)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (target := _origin(name, node)) is not None:
            for alias in node.names:
                full = ".".join([*target, alias.name])
                yield (full if _is_module(full) else ".".join(target)), True
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", False


def _origin(name: str, node: ast.ImportFrom) -> list[str] | None:
    """The steps to what stands behind `from`, if that is ours; the server names the client."""
    below = node.module.split(".") if node.module else []
    if node.level:
        here = name.split(".") + ([""] if _path(name).is_dir() else [])
        return [step for step in here[: -node.level] if step] + below
    is_servers = below[:1] == [CLIENT.name] and not name.startswith("client")
    return ["client", *below[1:]] if is_servers else None


def _path(name: str) -> Path:
    """The folder of a package, or the file of a module without its suffix."""
    first, *below = name.split(".")
    return CLIENT.joinpath(*below) if first == "client" else SERVICE.joinpath(first, *below)


def _is_module(name: str) -> bool:
    path = _path(name)
    return path.is_dir() or path.with_suffix(".py").is_file()


def _text(name: str) -> str:
    path = _path(name)
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")


def part(name: str) -> str:
    """The part of the architecture that a module belongs to."""
    return max((p for p in ALLOWED if name == p or name.startswith(p + ".")), key=len)


def folder(name: str) -> str:
    """The folder that a module lies in; for one at the top, its own name."""
    if _path(name).is_dir():
        return name
    return name.rpartition(".")[0] or name


def allowed(name: str) -> set[str]:
    """What a module may import: what its part may, and its own folder."""
    return ALLOWED[part(name)] | {folder(name)}


def is_allowed(target: str, names: set[str]) -> bool:
    below = [a.removesuffix("*") for a in names if a.endswith("*")]
    inside = any(f"{target}.".startswith(start) for start in below)
    return inside or bool({target, folder(target)} & names)


@cache
def trees() -> Mapping[str, ast.Module]:
    """The tree of each module by its name."""
    return dict(modules())


@cache
def imported() -> Sequence[tuple[str, str, bool]]:
    """Each module, what it imports, and whether that is ours."""
    return [(name, *it) for name, tree in trees().items() for it in imports(name, tree)]


@cache
def texts() -> Sequence[tuple[str, str]]:
    """Each module, and each text in it."""
    return [
        (name, node.value)
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_a_module_imports_only_what_its_part_may() -> None:
    breaches = [
        (name, target)
        for name, target, is_ours in imported()
        if is_ours and not is_allowed(target, allowed(name))
    ]

    assert breaches == []


def test_imports_inside_a_package_are_relative() -> None:
    ours = {SERVICE.name, CLIENT.name}

    breaches = [
        (name, target)
        for name, target, is_ours in imported()
        if not is_ours and target.split(".")[0] in ours
    ]

    assert breaches == []


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python before 3.11.5 takes too much then (gh-106052); an atomic group around it does not."""
    assert [(name, text) for name, text in texts() if POSSESSIVE.search(text)] == []


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        pytest.param(OF_A_KIND, KINDS, id="of what kind a space is"),
        pytest.param(OF_LIVENESS, LIVE, id="whether a memory is live"),
    ],
)
def test_a_thing_is_asked_in_one_place(asked: re.Pattern[str], where: set[str]) -> None:
    breaches = [
        (name, line)
        for name in trees().keys() - where
        for line in _text(name).splitlines()
        if asked.search(line)
    ]

    assert breaches == []


def test_the_rules_see_a_breach() -> None:
    breach = ast.parse("import pydantic\nfrom ..storage.sqlite import engine\n")

    found = list(imports("domain.errors", breach))

    assert found == [("pydantic", False), ("storage.sqlite.engine", True)]
    assert not is_allowed("storage.sqlite.engine", ALLOWED["domain"])
    shared = ast.parse("from agentops_memory_client.contract import errors\n")
    assert list(imports("mcp.tools", shared)) == [("client.contract.errors", True)]
    assert list(imports("client.client", shared)) == [("agentops_memory_client.contract", False)]
    assert not is_allowed("client.async_client", allowed("mcp.tools"))
    assert all(map(OF_A_KIND.search, ASKING))
    assert not OF_A_KIND.search("return Erasure(project=NO_PROJECT, kind=SpaceKind.STORE)")
    assert all(map(OF_LIVENESS.search, ["m.deleted_at IS NULL", "it.expires_at <= tx.now"]))
    assert not OF_LIVENESS.search("is_swept AND coalesce(:expires_at <= :now, 0)")
    assert all(map(POSSESSIVE.search, ["(?:a)++", "(a)*+", "(a)?+", "(a){0,5}+", "(a){2,}+"]))


def test_one_api_knows_no_other() -> None:
    apis = {folder(name) for name in trees() if name.startswith("api.")} - {"api.kit"}

    for api in apis:
        others = {it for it in apis if it.split(".")[1] != api.split(".")[1]}
        assert not any(is_allowed(other, ALLOWED[part(api)]) for other in others), api
