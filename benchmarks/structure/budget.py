"""The budget of the sources: each row has a ceiling, which may only be lowered, and a target."""

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .imports import by_module
from .sources import Module

# A noun's types are the data types that are named after it, in a role or in none.
NOUNS = (
    "Memor(?:y|ies)|Observations?", "Sessions?", "Stores?", "AgentEntr(?:y|ies)", "Tasks?",
    "Intents?", "RefEntr(?:y|ies)", "Runs?", "Pass(?:es)?", "Proposals?", "Commitments?",
)  # fmt: skip
_ROLES = "Body|ChangeBody|Object|Draft|Change|Query|Filter|Page|List|Row|Table|Event|Kind"
_LISTS = "Listed|Found|Deleted|One"

# A field of an agent's entry, of a memory, and of a commitment, each of them optional.
FIELDS = ("priority", "topic_key", "fired_at")
# Names that do not say what they stand for: `hits`, `params` or `response` do.
VAGUE = frozenset(
    """
    asked told given said shown held seen met heard there wanted found eyes turns turn rest
    patience recorded in_passing register registers moment place
    """.split()
)

# Not counted: migrations, examples of documentation, and programs beside the service.
_BESIDE = re.compile(r"_client/|/sqlite/migrate\.py|/docs_page/|/cli/")

_PORTS = ("Protocol", "ABC")
_DATA = ("BaseModel", "Body", "CamelBody", "Record", "NamedTuple", "TypedDict", "Protocol")


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of the sources, the most that it may be, and the target of the redesign."""

    name: str
    figure: float
    ceiling: float
    target: float


# Each row's ceiling is what was measured when it was last lowered.
BUDGET: Mapping[str, tuple[float, float]] = {
    "lines": (55_491, 46_000),
    "files": (163, 180),
    "types of a noun": (2, 4),
    "places of an optional field": (5, 5),
    "protocols with one implementation": (0, 0),
    "modules imported by one other": (20, 30),
    "percent of lines that import": (5.7, 5.0),
    "vague names": (166, 300),
}


def rows(modules: Sequence[Module]) -> list[Row]:
    """The budget table, measured; where a row is of many nouns or fields, of the worst."""
    figures = (
        sum(module.lines for module in modules),
        len(modules),
        max(map(len, types_of_nouns(modules).values())),
        max(places_of_fields(modules).values()),
        len(lone_protocols(modules)),
        len(lone_modules(modules)),
        import_share(modules),
        vague_names(modules),
    )
    return [Row(name, figure, *BUDGET[name]) for name, figure in zip(BUDGET, figures, strict=True)]


def types_of_nouns(modules: Sequence[Module]) -> Mapping[str, list[str]]:
    """The names of the service's data types for each noun."""
    names = [
        node.name
        for module, node in _classes(modules)
        if not _BESIDE.search(module.path.as_posix()) and _is_data(node)
    ]
    patterns = {noun: re.compile(f"(?:{_LISTS})?(?:{noun})(?:{_ROLES})?") for noun in NOUNS}
    return {
        noun: [name for name in names if pattern.fullmatch(name)]
        for noun, pattern in patterns.items()
    }


def places_of_fields(modules: Sequence[Module]) -> Mapping[str, int]:
    """The lines of code that name each of the fields, SQL included, prose not."""
    lines = dict.fromkeys(FIELDS, 0)
    for module in modules:
        if _BESIDE.search(module.path.as_posix()):
            continue
        named = defaultdict(set)
        for node in _code(module.tree):
            for word in _words(node):
                named[word].add(getattr(node, "lineno", 0))
        for field in FIELDS:
            lines[field] += len(named[field])
    return lines


def lone_protocols(modules: Sequence[Module]) -> list[str]:
    """Protocols that fewer than two classes implement, by name or by having all their methods."""
    classes = list(_classes(modules))
    protocols = [(m, node) for m, node in classes if "Protocol" in _bases(node)]
    concrete = [(node, _members(node)) for _, node in classes if not set(_PORTS) & _bases(node)]
    return [
        f"{module.name}.{port.name}"
        for module, port in protocols
        if sum(_implements(node, members, port) for node, members in concrete) < 2
    ]


def lone_modules(modules: Sequence[Module]) -> list[str]:
    """Modules, other than packages, that exactly one other module imports."""
    users = Counter(target for targets in by_module(modules).values() for target in targets)
    return [it.name for it in modules if not it.is_package and users[it.name] == 1]


def import_share(modules: Sequence[Module]) -> float:
    """The percentage of lines that are imports."""
    lines = sum(
        (node.end_lineno or 0) - node.lineno + 1
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    return round(100 * lines / sum(module.lines for module in modules), 1)


def vague_names(modules: Sequence[Module]) -> int:
    """How often one of `VAGUE` is the name of anything."""
    return sum(
        token.type == tokenize.NAME and token.string.lower() in VAGUE
        for module in modules
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline)
    )


def _classes(modules: Sequence[Module]) -> Iterator[tuple[Module, ast.ClassDef]]:
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                yield module, node


def _bases(node: ast.ClassDef) -> set[str]:
    return {name for base in node.bases if (name := _name(base))}


def _name(node: ast.expr) -> str:
    """The last name of `a.Name` or `Name[T]`."""
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return getattr(node, "attr", getattr(node, "id", ""))


def _is_data(node: ast.ClassDef) -> bool:
    """Whether it is a value: a model, or a dataclass that awaits nothing."""
    if set(_DATA) & _bases(node):
        return True
    is_dataclass = any(_name(it) == "dataclass" for it in node.decorator_list)
    return is_dataclass and not any(isinstance(it, ast.AsyncFunctionDef) for it in node.body)


def _members(node: ast.ClassDef) -> set[str]:
    """What a class defines: methods, and annotated or assigned names."""
    methods = {
        it.name for it in node.body if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assigned = {
        it.target.id
        for it in ast.walk(node)
        if isinstance(it, ast.AnnAssign) and isinstance(it.target, ast.Name)
    }
    return methods | assigned


def _implements(node: ast.ClassDef, members: set[str], port: ast.ClassDef) -> bool:
    required = {it for it in _members(port) if not it.startswith("__")}
    return port.name in _bases(node) or (bool(required) and required <= members)


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree without its docstrings."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        yield node
        yield from _code(node)


def _words(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield from re.findall(r"\w+", text)
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
            yield name
        case ast.keyword(arg=str(name)):
            yield name
