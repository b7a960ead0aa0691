"""The command line in this process, as somebody at a terminal uses it."""

import json
from dataclasses import dataclass, field
from typing import IO, Any

from click.testing import CliRunner, Result

from agentops_memory.cli import main

from .engines import command
from .service import Service

AGO = r"(?:just now|\d+ \w+ ago|in \d \w+)"  # services of tests have a clock of their own
WAYS = ("over HTTP", "on the file")  # to reach the memories of a service

NONE_OF_OURS = dict.fromkeys(
    "MEMORY_URL MEMORY_API_KEY MEMORY_PROJECT MEMORY_DB_PATH MEMORY_DATABASE_URL NO_COLOR".split()
)


@dataclass(frozen=True, slots=True)
class Terminal:
    """Runs commands with these variables."""

    variables: dict[str, str] = field(default_factory=dict)

    def run(
        self, *arguments: object, given: str | bytes | IO[Any] | None = None, **options: Any
    ) -> Result:
        """What became of a command; nothing is raised but what is wrong with the program."""
        words, variables = command([*map(str, arguments)], self.variables)
        done = CliRunner().invoke(
            main, words, env={**NONE_OF_OURS, **variables}, input=given,
            prog_name="agentops-memory", **options,
        )  # fmt: skip
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
        return done

    def say(self, *arguments: object, given: str | bytes | None = None) -> str:
        """What a command that succeeds prints."""
        done = self.run(*arguments, given=given)
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *arguments: object, given: str | bytes | None = None) -> Any:
        """What a command that succeeds prints as JSON: one document, and nothing else."""
        return json.loads(self.say(*arguments, "--json", given=given))


def at_a_project(service: Service, way: str, project: str) -> Terminal:
    """A terminal at a project; the file is that which the service is running on."""
    place = {"MEMORY_URL": service.url}
    if way == "on the file":
        place = {"MEMORY_DB_PATH": str(service.path)}
    return Terminal({"MEMORY_PROJECT": project} | place)
