"""What is done to a service, and what it answers, by names that are the same in both."""

import json
from dataclasses import dataclass, field
from typing import Any

Headers = dict[str, str]

RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A request, with the names of what it speaks of; or time that passes, or a restart.

    Or work on projects: the method is that of `Projects`, and the path the two projects.
    """

    number: int
    seconds: float = 0.0
    method: str = ""
    path: str = ""
    headers: Headers = field(default_factory=dict)
    body: str = ""  # bytes that are no UTF-8 are lone surrogates

    def __str__(self) -> str:
        if self.seconds:
            return f"{self.number}: {self.seconds} s pass"
        told = "".join(f" -H {name}:{value}" for name, value in self.headers.items())
        return f"{self.number}: {self.method} {self.path}{told} {self.body}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, with names."""

    status: int
    headers: tuple[tuple[str, str], ...]
    text: str

    @property
    def is_success(self) -> bool:
        return self.status < 300

    def json(self) -> Any:
        return json.loads(self.text)

    def made(self, name: str = "id") -> list[Any]:
        """What has been made, by its id; nothing, if the request was refused."""
        return [self.json()[name]] if self.is_success else []


NOTHING = Answer(status=0, headers=(), text="")
