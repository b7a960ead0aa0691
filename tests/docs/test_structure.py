"""The sources in figures: what is counted, and which cycles are seen."""

from functools import cache
from pathlib import Path

import pytest
from benchmarks import CLIENT, SERVICE
from benchmarks.structure import budget
from benchmarks.structure.__main__ import LONG, main, report
from benchmarks.structure.imports import by_folder, by_module, cycles, pairs
from benchmarks.structure.sources import Module, modules

SLACK = 0.01  # of a figure, below which its ceiling need not be lowered
SOURCES = {
    "one/__init__.py": "VERSION = 1\n", "one/__main__.py": "from .loose import f\n",
    "one/loose.py": "import two.other\nfrom . import VERSION\n\ndef f():\n    return 1\n",
    "one/deep/__init__.py": "from .first import g\n",
    "one/deep/first.py": "def g():\n    from . import second\n\n    async def h():\n        pass\n",
    "one/deep/second.py": "from .first import g\n", "two/__init__.py": "",
    "two/other.py": "from one.deep import g\n",
    "two/near.py": "from ..two.other import g\nfrom os import path\n",
}  # fmt: skip


@cache
def ours() -> list[Module]:
    """The modules of both packages, read once."""
    return modules(SERVICE, CLIENT)


@pytest.fixture
def found(tmp_path: Path) -> list[Module]:
    """The modules of two packages."""
    for path, text in SOURCES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    return modules(tmp_path)


# An engine's promises name what memory has, and that is written against them.
CYCLES = {
    "agentops_memory/engine agentops_memory/memory agentops_memory/recall",
}


def test_a_module_imports_modules_and_packages(found: list[Module]) -> None:
    assert by_module(found) == {
        "one": set(), "one.__main__": {"one.loose"}, "one.loose": {"one", "two.other"},
        "one.deep": {"one.deep.first"}, "one.deep.first": {"one.deep.second"},
        "one.deep.second": {"one.deep.first"}, "two": set(), "two.near": {"two.other"},
        "two.other": {"one.deep"},
    }  # fmt: skip


def test_a_cycle_is_seen_however_long_it_is(found: list[Module]) -> None:
    longer = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"a"}}

    assert cycles(by_module(found)) == [["one.deep.first", "one.deep.second"]]
    assert cycles(by_folder(found)) == []
    assert cycles(longer) == [["a", "b", "c"]]
    assert pairs(longer) == []
    assert pairs({**longer, "b": {"a", "c"}}) == [("a", "b")]


def test_the_report_counts_what_is_there(found: list[Module]) -> None:
    long = Module(Path("two/long.py"), "\n" * 601)

    assert [line.split() for line in report([*found, long])] == [
        "loose modules 1 at the top of one".split(), "loose modules 3 at the top of two".split(),
        "largest folder 4 files in two".split(), "functions 3".split(), "median 1 lines".split(),
        "p90 4 lines".split(), "files over 600 lines 1".split(), "601 two/long.py".split(),
        "import cycles of modules 1".split(), "one.deep.first, one.deep.second".split(),
        "import cycles of folders 0".split(), "folders that import each other 0".split(),
    ]  # fmt: skip


@pytest.mark.slow
def test_no_module_of_ours_imports_itself_through_others() -> None:
    assert cycles(by_module(ours())) == []


@pytest.mark.slow
def test_folders_that_import_each_other_become_no_more() -> None:
    assert {" ".join(it) for it in cycles(by_folder(ours()))} <= CYCLES


def test_no_file_of_ours_is_too_long_to_read() -> None:
    assert [it.path for it in ours() if it.lines > LONG] == []


@pytest.mark.slow
def test_the_sources_keep_to_their_budget() -> None:
    """A figure that fell takes its ceiling along: lower it in `benchmarks/structure/budget.py`."""
    rows = budget.rows(ours())

    assert [row for row in rows if row.figure > row.ceiling] == []
    assert [row for row in rows if row.figure < row.ceiling * (1 - SLACK)] == []


def test_a_protocol_is_implemented_by_name_or_by_its_methods() -> None:
    source = """
class Named(Protocol):
    def open(self): ...

class Shaped(Protocol):
    size: int
    def read(self): ...

class First(Named):
    pass

class Second(Named):
    pass

class File:
    def __init__(self):
        self.size: int = 0
    def read(self): ...
"""
    module = Module(Path("one/ports.py"), source)

    assert budget.lone_protocols([module]) == ["one.ports.Shaped"]


def test_types_and_places_are_counted_by_their_names() -> None:
    module = Module(
        Path("one/runs.py"),
        '''
class RunBody(BaseModel):
    """The priority of a run."""
    priority: int

@dataclass
class FoundRuns:
    runs: list[RunBody]

class RunHandlers:
    def put(self, body):
        return work("UPDATE runs SET priority = :p", p=body.priority)
''',
    )

    assert budget.types_of_nouns([module])["Runs?"] == ["RunBody", "FoundRuns"]
    assert budget.places_of_fields([module])["priority"] == 2
    assert budget.lone_modules([module]) == []


@pytest.mark.heavy
def test_the_report_ends_with_the_rooms(capsys: pytest.CaptureFixture[str]) -> None:
    main()

    assert "import cycles of modules             0" in capsys.readouterr().out


def test_a_vague_name_counts_wherever_it_is_a_name() -> None:
    source = """
def found(query):  # what was found
    hits = run("SELECT found", given=query)
    return [hit for hit in hits if found_before(hit)]
"""

    assert budget.vague_names([Module(Path("one/search.py"), source)]) == 2
