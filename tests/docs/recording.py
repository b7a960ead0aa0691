"""A recording of a terminal for the README: `python -m tests.docs.recording` writes it."""

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

FILE = Path(__file__).parents[2] / "docs" / "terminal.svg"
COLUMNS = 92
COMMANDS = (
    'save "Payment timeouts" "The provider needs up to 12 s, so proxy_read_timeout is 30s."',
    'save "Queue" "Orders go through a queue." --type decision',
    'supersede 2 "Orders go through two queues, one for refunds."',
    "search why does the paymant time out --explain",
    "context where do orders go --limit 1",
)


def recorded() -> Console:
    """What a terminal shows of the commands, in the repository of a shop with an empty file."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        shop = Path(folder) / "shop"
        shop.mkdir()
        variables = {**os.environ, "MEMORY_DB_PATH": f"{folder}/memory.db", "MEMORY_URL": ""}
        variables.pop("MEMORY_PROJECT", None)
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), f"agentops-memory {command}"))
            done = subprocess.run(
                [sys.executable, "-m", "agentops_memory", *shlex.split(command)],
                cwd=shop, env=variables, capture_output=True, text=True, check=True,
            )  # fmt: skip
            console.print(Text(done.stdout))
    return console


if __name__ == "__main__":
    svg = recorded().export_svg(title="agentops-memory", unique_id="recording")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # nothing is loaded for it
    FILE.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", "utf-8")
