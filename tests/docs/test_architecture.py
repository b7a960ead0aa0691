"""Which room may import which, and what is decided in one place alone."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache

import pytest
from benchmarks import CLIENT, SERVICE
from benchmarks.structure.imports import by_module
from benchmarks.structure.sources import Module, modules as sources

PACKAGE, CLIENTS = "agentops_memory", "agentops_memory_client"

APP = {"__main__", "server", "compose", "backend", "local", "jobs", "operations"}
PROTOCOLS = {"agentops", "stores", "openintent", "openwop", "mcp"}
ENGINES = {"sqlite", "postgresql"}
CORE = {"memory", "recall", "secrets"}
BASE = {"engine", "errors", "light", "record", "client", ""}
SIDE = {"http", "telemetry", "settings"}

pytestmark = pytest.mark.slow  # all sources are read

# Rooms: the rooms that they may import. Protocols and engines know none of their own kind.
ALLOWED: Mapping[frozenset[str], set[str]] = {
    frozenset({"cli"}): APP | PROTOCOLS | ENGINES | CORE | BASE | SIDE,
    frozenset(APP): APP | {"console"} | PROTOCOLS | ENGINES | CORE | BASE | SIDE | {"cli"},
    frozenset({"console"}): PROTOCOLS | CORE | BASE | SIDE,
    frozenset(PROTOCOLS): CORE | BASE | SIDE, frozenset(ENGINES): CORE | BASE,
    frozenset(SIDE): CORE | BASE | SIDE, frozenset(CORE): CORE | BASE, frozenset(BASE): BASE,
}  # fmt: skip

# Imports against the table that are still there, by the rooms; a number may only fall.
CROSSINGS: Mapping[tuple[str, str], int] = {
    ("engine", "memory"): 5, ("engine", "recall"): 1, ("postgresql", "operations"): 1,
    ("sqlite", "openintent"): 1,
}  # fmt: skip

POSSESSIVE = re.compile(r"(?<!\\)\)(?:[*+?]|\{[0-9]*,?[0-9]*\})\+")  # of a group

# What only the table of traits, and its SQL, may ask or spell out.
OF_A_KIND = re.compile(
    r"\bis_store\b|(==|!=|\bis|\bin|\bnot)\s+(NO_PROJECT|SpaceKind)\b|\bNO_PROJECT\s+(==|!=|is\b)"
    r"|\b(space\.kind|SpaceKind\.\w+)\s+(==|!=|is\b|in\b)|\bs\.kind\s*(=|<>|IN\b|IS\b)"
    r"|\b(project|session_id)\s+IS\b"
)
# What only the predicate of liveness, and its SQL, may ask; the upgrade reads the original's file.
OF_LIVENESS = re.compile(
    r"\bdeleted_at\s+IS\b|(?<!:)\bexpires_at\s*(<|>|=\s).*\bnow\b(?!\s*\+)", re.IGNORECASE
)
LIVE = {"memory.memory", "sqlite.migrate"}
KINDS = {"memory.space"}


@cache
def modules() -> Mapping[str, Module]:
    """Every module of both packages by its dotted name."""
    return {module.name: module for module in sources(SERVICE, CLIENT)}


@cache
def imports() -> Mapping[str, set[str]]:
    """The modules that each of ours imports."""
    return by_module(list(modules().values()))


def room(name: str) -> str:
    """The room of a module: the folder, or the loose module, at the top of the package."""
    package, _, below = name.partition(".")
    return "client" if package == CLIENTS else below.partition(".")[0]


def allowed(importer: str) -> set[str]:
    """The rooms that a room may import, itself included."""
    [rooms] = [names for rooms, names in ALLOWED.items() if importer in rooms]
    return rooms | {importer}


def crossings(graph: Mapping[str, set[str]]) -> Iterator[tuple[str, str]]:
    """Each import against the table: the importing module and the imported one."""
    for importer, imported in graph.items():
        names = allowed(room(importer))
        yield from ((importer, name) for name in imported if room(name) not in names)


def test_a_room_imports_only_the_rooms_below_it() -> None:
    """An import that went takes its number along: lower it in `CROSSINGS`."""
    found = crossings(imports())

    assert Counter((room(importer), room(imported)) for importer, imported in found) == CROSSINGS


def test_the_client_knows_nothing_of_the_server() -> None:
    graph = imports()

    assert [
        (importer, name)
        for importer, imported in graph.items()
        if room(importer) == "client"
        for name in imported
        if room(name) != "client"
    ] == []


def test_imports_inside_a_package_are_relative() -> None:
    breaches = [
        (module.name, node.module)
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and not node.level
        if (node.module or "").split(".")[0] == module.package
    ]

    assert breaches == []


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python before 3.11.5 takes too much then (gh-106052); an atomic group around it does not."""
    breaches = [
        (module.name, node.value)
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if POSSESSIVE.search(node.value)
    ]

    assert breaches == []


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
        for name, module in modules().items()
        if name.removeprefix(f"{PACKAGE}.") not in where
        for line in module.text.splitlines()
        if asked.search(line)
    ]

    assert breaches == []
