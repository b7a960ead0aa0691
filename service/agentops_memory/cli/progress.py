"""How far a transfer is, on standard error, and only while somebody watches."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from agentops_memory_client.contract.port import Progress

from .output import is_terminal, size


@contextmanager
def watched(label: str, *, beside_output: bool = False) -> Iterator[Progress | None]:
    """What a transfer tells its progress to; nothing if nobody watches, or watches its output."""
    if not is_terminal(sys.stderr) or (beside_output and is_terminal(sys.stdout)):
        yield None
        return

    def shown(done: int | None) -> str | None:
        return None if done is None else size(done)

    bar = click.progressbar(length=1, label=label, file=sys.stderr, item_show_func=shown)
    bar.length = None  # it is told, if it is known
    with bar:

        def tell(done: int, of: int | None) -> None:
            bar.length = of
            bar.update(done - bar.pos, done)

        yield tell


def unheard(_: int, __: int | None) -> None:
    """For what must tell somebody, while nobody watches."""
