"""What is measured of hosts' memory: every aim has a figure, and its command stands beside it."""

from pathlib import Path

from ..support.requirements import requirement

ROOT = Path(__file__).parents[2]
COMMAND = "python -m benchmarks.openwop"
# Figures that have an aim: what each begins with, what it is against, and the bound.
AIMS = {
    "/context with 300 entries in refs against without": 1.1,
    "/context with 200 more, half of them superseded, against without": 1.1,
    "newest 100 of 200 against newest 100 of 10": 1.5,
    "with a tag of one in a thousand against newest 100": 1.5,
    "in a run, 100 put and 100 deleted since against newest 100": 1.5,
    "of 200, half of them superseded against newest 100": 1.5,
    "GET an entry against GET a store's entry": 1.2,
    "put in a run with two tags against POST /observations": 1.3,
    "put with 100 registered values against none": 2,
    "put while 60 entries are consolidated against without": 3,
}


@requirement("OW-106")
def test_the_command_of_the_benchmark_stands_beside_its_figures() -> None:
    document = (ROOT / "docs" / "performance.md").read_text("utf-8")
    (section,) = (part for part in document.split("\n## ") if f"`{COMMAND}`" in part)

    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(AIMS)
    for _, what, against, ratio, aim, _ in rows:
        assert what.strip()
        assert against.strip()
        assert float(ratio) > 0
        assert float(aim.split(",")[0]) in AIMS.values()
        assert ("missed" in aim) is (float(ratio) > float(aim.split(",")[0]))
    assert f"$(BIN)/{COMMAND}" in (ROOT / "Makefile").read_text("utf-8")
