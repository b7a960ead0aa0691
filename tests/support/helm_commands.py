"""The commands of the documents that install the chart, and the values that they give."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..docs.test_docs import DOCUMENTS, blocks, steps
from .chart import CHART, ROOT, Values, merged

INSTALLING = (["helm", "install"], ["helm", "upgrade"])
SWITCHES = {"--install", "--wait", "--create-namespace", "--reset-then-reuse-values"}
NOT_RENDERED = SWITCHES - {"--create-namespace"}  # `helm template` does not know them


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`helm install` or `helm upgrade`, as a document has it."""

    text: str

    @property
    def arguments(self) -> list[str]:
        """What `helm template` renders in its place."""
        return [word for word in self._words if word not in NOT_RENDERED]

    @property
    def is_of_the_chart(self) -> bool:
        """Whether the chart is named where Helm looks for it: after the release."""
        words = [word for word in self._words if word not in SWITCHES]
        return words[1] == str(CHART.relative_to(ROOT))

    @property
    def values(self) -> Values:
        """What `--set` and the files say."""
        words = iter(self._words)
        parts: list[Values] = []
        for word in words:
            if word == "--set":
                parts += [_value(each) for each in next(words).split(",")]
            elif word in {"-f", "--values"}:
                parts.append(yaml.safe_load((ROOT / Path(next(words))).read_text("utf-8")))
        return merged(*parts)

    @property
    def _words(self) -> list[str]:
        return shlex.split(self.text)[2:]


def commands() -> list[Command]:
    """All of them."""
    # A variable of the shell is a name of the operator's.
    texts = [
        re.sub(r"\$(\w+)", lambda found: found[1].lower(), step.command)
        for document in DOCUMENTS
        for block in blocks(document, "console-cluster")
        for step in steps(block)
    ]
    return [Command(text=text) for text in texts if shlex.split(text)[:2] in INSTALLING]


def _value(assignment: str) -> dict[str, Any]:
    """One of `--set`: numbers and booleans are what they look like, as Helm takes them."""
    path, _, text = assignment.partition("=")
    value: Any = yaml.safe_load(text) if text in {"true", "false"} or text.isdecimal() else text
    for name in reversed(path.split(".")):
        value = {name: value}
    return dict(value)
