"""The commands that change one memory or several: edited, ended, brought back, put first."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import click

from agentops_memory_client.contract.models import Observation
from agentops_memory_client.contract.service import MemoryService

from ...settings.parsing import retention
from ..catalog import command, is_id
from ..errors import CommandRefused
from ..options import id_argument, ids_argument, json_option, parsed_by, target_options, types
from ..output import is_terminal, one_line, read_piped, show
from ..print_results import print_json
from ..target import run_on_target, taken_from

Work = Callable[[MemoryService, int], Awaitable[Observation | None]]

_json = json_option("Print the JSON of the REST API.")


def _each(name: str, verb: str, help: str, work: Work) -> click.Command:  # noqa: A002 - click's
    """The command that does one thing to each of several memories."""

    @command(name, help=help)
    @ids_argument
    @target_options
    @_json
    def changed(memories: Sequence[int], as_json: bool, **where: str | None) -> None:
        async def done(service: MemoryService) -> list[Observation | None]:
            for it in memories:
                await service.get(it)  # all of them, or none
            return [await work(service, it) for it in memories]

        answers = run_on_target(where, done)
        if as_json:
            shown = [it or {"id": id_} for it, id_ in zip(answers, memories, strict=True)]
            print_json(shown if shown[1:] else shown[0])
            return
        for it, id_ in zip(answers, memories, strict=True):
            show(one_line(f"{verb} #{id_}{f': {it.title}' if it else ''}"))

    return changed


async def _deleted(memories: MemoryService, memory: int) -> None:
    await memories.delete(memory)


delete = _each(
    "delete", "Deleted",
    "Delete the memories ID. `restore ID` brings one back while MEMORY_KEEP_DELETED lasts.",
    _deleted,
)  # fmt: skip
pin = _each(
    "pin", "Pinned", "Put the memories ID first in every context of their project.",
    lambda memories, it: memories.update(it, pinned=True),
)  # fmt: skip
unpin = _each(
    "unpin", "Unpinned", "Let the memories ID stand in a context by their words alone.",
    lambda memories, it: memories.update(it, pinned=False),
)  # fmt: skip
confirm = _each(
    "confirm", "Confirmed", "Confirm that the memories ID are still true.",
    lambda memories, it: memories.confirm(it),
)  # fmt: skip


@command()
@id_argument
@click.argument("content", required=False)
@click.option("--title", metavar="TEXT", help="Another title.")
@click.option("--type", metavar="TYPE", shell_complete=types, help="Another type.")
@click.option("--tag", "tags", multiple=True, metavar="TAG",
              help="These tags in place of those it has; '' is none.")  # fmt: skip
@click.option("--ttl", metavar="TIME", callback=parsed_by(retention),
              help="How long it is true from now on, such as 30d; 0 is for good.")  # fmt: skip
@target_options
@_json
def edit(memory: int, content: str | None, as_json: bool, **given: Any) -> None:
    """Change the memory ID: its content, or what the options name.

    With neither, an editor opens (EDITOR) with the title in the first line. - reads the
    content from standard input. The text before stays in `history`.
    """
    where, changes = taken_from(given), _changes(content, **given)
    if not changes:
        if not is_terminal(sys.stdout):
            raise click.UsageError("Give CONTENT, --title, --type, --tag or --ttl.")
        before = run_on_target(where, lambda memories: memories.get(memory))
        changes = _edited(before)
    changed = run_on_target(where, lambda memories: memories.update(memory, **changes))
    _print_changed("Changed", changed, as_json=as_json)


def _changes(
    content: str | None, *, title: str | None, type: str | None, tags: Sequence[str],  # noqa: A002
    ttl: timedelta | None,
) -> dict[str, Any]:  # fmt: skip
    text = read_piped() if content == "-" else content
    named = {"content": text, "title": title, "type": type}
    changes: dict[str, Any] = {name: it for name, it in named.items() if it is not None}
    if tags:
        changes["tags"] = [it for it in tags if it]
    if ttl is not None:
        changes |= {"ttl": ttl} if ttl else {"expires_at": None}
    return changes


def _edited(before: Observation) -> dict[str, Any]:
    text = click.edit(f"{before.title}\n\n{before.content}\n", extension=".md")
    title, _, content = (text or "").strip().partition("\n")
    if not title.strip() or (title, content.strip()) == (before.title, before.content.strip()):
        raise CommandRefused("Nothing was changed.")
    return {"title": title.strip(), "content": content.strip()}


@command()
@id_argument
@click.argument("new", metavar="NEW")
@target_options
@_json
def supersede(memory: int, new: str, as_json: bool, **where: str | None) -> None:
    """Replace the memory ID by NEW: the id of another memory, or a text to save in its place.

    Searches and contexts leave the old one out from now on; `show` still has it.
    """

    async def superseded(memories: MemoryService) -> Observation:
        old = await memories.get(memory)
        if is_id(new):
            by = await memories.get(int(new.removeprefix("#")))
            return await memories.update(by.id, supersedes=[*by.supersedes, memory])
        saved = await memories.save(
            session_id=old.session_id, project=old.project, type=old.type, title=old.title,
            content=new, tags=old.tags, scope=old.scope, supersedes=[memory],
        )  # fmt: skip
        return await memories.get(saved.id)

    changed = run_on_target(where, superseded)
    if as_json:
        print_json(changed)
    else:
        show(one_line(f"#{memory} is replaced by #{changed.id}: {changed.title}"))


def restored(memory: int, revision: int | None, where: dict[str, str | None]) -> Observation:
    """A deleted memory as it was, or the text that a memory had in a revision."""

    async def back(memories: MemoryService) -> Observation:
        wanted = revision
        if wanted is None:
            newest, *older = await memories.history(memory)
            if newest.action != "deleted" or not older:
                raise CommandRefused(
                    f"#{memory} is not deleted; --revision brings back an earlier text, and "
                    f"`agentops-memory history {memory}` shows them."
                )
            wanted = older[0].revision
        return await memories.restore(memory, wanted)

    return run_on_target(where, back)


def print_restored(restored: Observation, *, as_json: bool) -> None:
    _print_changed("Restored", restored, as_json=as_json)


def _print_changed(verb: str, changed: Observation, *, as_json: bool) -> None:
    if as_json:
        print_json(changed)
    else:
        show(one_line(f"{verb} #{changed.id}: {changed.title}"))
