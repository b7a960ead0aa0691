"""What is measured of hosts' memory: every aim has a figure, and its command stands beside it."""

from pathlib import Path

from ..support.requirements import requirement

ROOT = Path(__file__).parents[2]
COMMAND = "python -m benchmarks.openwop"
AIMS = 10  # figures of the contract that have one


@requirement("OW-106")
def test_the_command_of_the_benchmark_stands_beside_its_figures() -> None:
    document = (ROOT / "docs" / "performance.md").read_text("utf-8")
    (section,) = (part for part in document.split("\n## ") if f"`{COMMAND}`" in part)

    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == AIMS
    for _, what, against, ratio, aim, _ in rows:
        assert what.strip()
        assert against.strip()
        assert float(ratio) > 0
        assert ("missed" in aim) is (float(ratio) > float(aim.split(",")[0]))
    assert f"$(BIN)/{COMMAND}" in (ROOT / "Makefile").read_text("utf-8")
