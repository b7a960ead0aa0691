"""The commands on memories, for people: save, find, show, change and review."""

import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import click
from click.core import ParameterSource

from agentops_memory_client.contract.errors import NotFound
from agentops_memory_client.contract.models import Context, Found, Observation
from agentops_memory_client.contract.service import MemoryService

from ...memory.space import project_name
from ...settings.parsing import retention
from .. import options, output
from .. import print_results as results
from ..catalog import command, is_id
from ..output import CommandRefused
from ..place import now
from ..target import OPTIONS, run_on_target, taken_from

LONGEST_TITLE = 60  # characters that a title has which is taken from its text

_explain = options.flag("--explain", help="Explain why each memory was found.")


@command()
@click.argument("title", metavar="[TITLE] CONTENT")
@click.argument("content", required=False, metavar="")
@options.here_option
@click.option("--type", default="discovery", show_default=True, shell_complete=options.types,
              help="Type of the memory, such as decision, bugfix or config.")  # fmt: skip
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="May be repeated.")
@click.option(
    "--topic-key", metavar="KEY", help="Topic of the memory; a save with the same key updates it."
)
@click.option("--scope", metavar="NAME", help="A global memory is visible in every project.")
@click.option("--session", "session_id", metavar="ID",
              help="Session to save it in. [default: cli:PROJECT:DATE]")  # fmt: skip
@click.option("--ttl", metavar="TIME", callback=options.parsed_by(retention),
              help="How long the memory stays valid, such as 30d.")  # fmt: skip
@options.flag("--pinned", help="Show it first in every context of the project.")
@click.option("--supersedes", multiple=True, metavar="ID", type=options.MemoryId(),
              shell_complete=options.ids,
              help="A memory that this one replaces; may be repeated.")  # fmt: skip
@options.answer_options
def save(title: str, content: str | None, project: str, **params: Any) -> None:
    """Save a memory: a text alone, or a title and its content.

    The project is that of the repository you are in, and the session is today's.
    CONTENT is read from standard input if it is - or comes through a pipe. The same
    topic key updates the memory that has it; the same text again within
    MEMORY_DEDUPE_WINDOW is counted, and not stored twice.
    """
    if not project:
        raise click.UsageError("A memory needs a project: set --project or MEMORY_PROJECT.")
    title, text = _titled(title, content)
    where, as_json = taken_from(params), params.pop("as_json")
    params |= {"project": project, "title": title, "content": text}
    params["pinned"] = params["pinned"] or None
    params["session_id"] = params["session_id"] or f"cli:{project_name(project)}:{now():%Y-%m-%d}"
    saved = run_on_target(where, lambda it: it.save(**params), may_make=True)
    source = click.get_current_context().get_parameter_source("project")
    is_found = source is ParameterSource.DEFAULT  # which the user has not said, and may not expect
    where_it_is = f" in the project {project_name(project)}" if is_found else ""
    results.print_saved(saved, where_it_is, as_json=as_json)


def _titled(title: str, content: str | None) -> tuple[str, str]:
    """The title and the content; a text alone is its own title as far as that may go."""
    if content == "-" or (content is None and output.is_piped()):
        piped = output.read_piped()
        if piped or content == "-":
            return title, piped
    if content is not None:
        return title, content
    first, _, rest = title.strip().partition("\n")
    if rest.strip():
        return first.strip(), rest.strip()
    return output.cut(first.rstrip("."), LONGEST_TITLE), first


@command("list")
@options.here_option
@options.type_option
@options.excluded_option
@options.tag_option
@options.scope_name_option
@options.limit_option(default=20)
@click.option(
    "--before", metavar="ID", type=options.MemoryId(), help="Only memories older than this one."
)
@options.answer_options
def list_(limit: int, as_json: bool, **params: Any) -> None:
    """List the memories of the project, newest first."""
    where = taken_from(params)

    async def listed(memories: MemoryService) -> tuple[list[Observation], list[str]]:
        # One more tells that there is more.
        found = await memories.recent(limit=limit + 1, **params)
        if not found:
            return found, await results.nothing(memories, "No memory was found", params)
        more = [f"There is more: --before {found[limit - 1].id}"] if len(found) > limit else []
        return found[:limit], more

    found, notes = run_on_target(where, listed)
    if as_json:
        results.print_json(found)
    elif found:
        rows = [(f"#{it.id}", output.ago(it.updated_at), it.type, _marked(it)) for it in found]
        output.print_table(("ID", "CHANGED", "TYPE", "TITLE"), rows)
    results.say_each(notes)


def _marked(it: Observation) -> str:
    marks = {"pinned": it.pinned, "replaced": it.superseded_by}
    return "".join(f"({mark}) " for mark, has_it in marks.items() if has_it) + it.title


@command("show")
@options.id_argument
@options.answer_options
def show_(memory: int, **params: Any) -> None:
    """Show the memory ID in full."""
    found = results.answered(params, lambda memories: memories.get(memory))
    output.show(output.one_line(f"#{found.id}  [{found.type}] {found.title}"), bold=True)
    for name, value in _facts(found):
        output.show(f"{name:<13}{output.one_line(value)}", indent=2, dim=True)
    click.echo()
    for line in output.lines(found.content):
        click.echo(line)


def _facts(it: Observation) -> Iterator[tuple[str, str]]:
    yield "project", it.project if it.scope == "project" else f"{it.project} ({it.scope})"
    yield "session", it.session_id
    revisions = f", revision {it.revision_count}" if it.revision_count > 1 else ""
    yield "saved", f"{output.ago(it.created_at)}{revisions}"
    for name, at in (
        ("changed", it.updated_at if it.updated_at != it.created_at else None),
        ("confirmed", it.confirmed_at), ("review", it.review_at), ("expires", it.expires_at),
    ):  # fmt: skip
        if at:
            yield name, output.ago(at)
    for name, value in (
        ("topic key", it.topic_key), ("tags", ", ".join(it.tags)), ("pinned", it.pinned and "yes"),
        ("supersedes", results.ids_of(it.supersedes)),
        ("replaced by", results.ids_of(it.superseded_by)),
    ):  # fmt: skip
        if value:
            yield name, value


@command()
@click.argument("words", nargs=-1, required=True)
@options.here_option
@options.type_option
@options.excluded_option
@options.tag_option
@options.scope_name_option
@options.limit_option(default=10)
@options.flag("--superseded", help="Include memories that another one replaces.")
@_explain
@options.answer_options
def search(words: Sequence[str], as_json: bool, **params: Any) -> None:
    """Find memories of the project, and global ones, by WORDS, best match first."""
    where = taken_from(params)

    async def searched(memories: MemoryService) -> tuple[Found, list[str]]:
        found = await memories.search(" ".join(words), **params)
        if found.hits:
            return found, []
        every = await memories.search(" ".join(words), **params | {"superseded": True})
        return found, await results.nothing(memories, "Nothing was found", params, len(every.hits))

    found, notes = run_on_target(where, searched)
    results.print_found(found, as_json=as_json)
    results.say_each(notes)


@command()
@click.argument("prompt", nargs=-1)
@options.here_option
@options.excluded_option
@options.tag_option
@options.scope_name_option
@options.limit_option(default=5)
@_explain
@options.answer_options
def context(prompt: Sequence[str], as_json: bool, **params: Any) -> None:
    """Preview the context that an agent of the project would get for PROMPT.

    Without a prompt it shows the newest memories; without a project, only global ones.
    """
    where, query = taken_from(params), " ".join(prompt) or None

    async def reminded(memories: MemoryService) -> tuple[Context, list[str]]:
        found = await memories.context(query=query, **params)
        if found.observations or found.summaries:
            return found, []
        return found, await results.nothing(memories, "The context would be empty", params)

    found, notes = run_on_target(where, reminded)
    results.print_context(found, as_json=as_json)
    results.say_each(notes)


@command()
@options.id_argument
@click.option("--before", type=click.IntRange(1, 1000), default=3, show_default=True)
@click.option("--after", type=click.IntRange(1, 1000), default=3, show_default=True)
@options.answer_options
def timeline(memory: int, before: int, after: int, **params: Any) -> None:
    """Show what was saved before and after the memory ID in its project."""
    entries = results.answered(params, lambda it: it.timeline(memory, before=before, after=after))
    rows = [
        (">" if it.id == memory else "", f"#{it.id}", output.ago(it.created_at), it.type, it.title)
        for it in entries
    ]
    output.print_table(("", "ID", "SAVED", "TYPE", "TITLE"), rows)


@command()
@options.id_argument
@options.answer_options
def history(memory: int, **params: Any) -> None:
    """Show the revisions of the memory ID and what each changed, newest first."""
    results.print_history(results.answered(params, lambda memories: memories.history(memory)))


@command()
@options.project_option
@options.limit_option(default=20)
@click.option("--before", metavar="ID", help="Only sessions older than this one.")
@options.answer_options
def sessions(**params: Any) -> None:
    """List the sessions of the project, or of all projects, newest first."""
    found = results.answered(params, lambda memories: memories.sessions(**params))
    if not found:
        output.say("There are no sessions.")
        return
    rows = [
        (it.id, it.project, output.ago(it.started_at), "ended" if it.ended_at else "open",
         it.message_count, it.summary or "")
        for it in found
    ]  # fmt: skip
    output.print_table(("ID", "PROJECT", "STARTED", "STATE", "MESSAGES", "SUMMARY"), rows)


@command()
@options.project_option
@options.flag("--storage", help="Show how the tenants' files use their space.")
@options.answer_options
def stats(project: str | None, storage: bool, **params: Any) -> None:
    """Show how much is stored, in the project or in all projects.

    --storage shows what the files contain, how much of it has a retention time, and
    what the next sweep would remove with the settings of this environment.
    """
    if storage:
        # Not at the top: it needs what reads a file, which a service's memories do not.
        from .databases import print_storage  # noqa: PLC0415

        print_storage(params, as_json=params["as_json"])
        return
    totals = results.answered(params, lambda memories: memories.stats(project))
    observations = output.counted(totals.total_observations, "observation")
    own_sessions = output.counted(totals.total_sessions, "session")
    place = f" in the project {project_name(project)}" if project else ""
    output.show(output.one_line(f"{observations} and {own_sessions}{place}"))
    for name in totals.projects if not project else ():
        output.show(output.one_line(name), indent=2)


Work = Callable[[MemoryService, int], Awaitable[Observation | str | None]]


def _each(name: str, verb: str, help: str, work: Work) -> click.Command:  # noqa: A002 - click's
    """The command that does one thing to each of several memories."""

    @command(name, help=help)
    @options.ids_argument
    @options.answer_options
    def changed(memories: Sequence[int], as_json: bool, **where: str | None) -> None:
        async def done(service: MemoryService) -> list[Observation | None]:
            for it in memories:  # all of them, or none
                try:
                    await service.get(it)
                except NotFound as error:
                    raise NotFound(f"There is no memory #{it}; nothing was changed.") from error
            answers = [await work(service, it) for it in memories]
            return [it if isinstance(it, Observation) else None for it in answers]

        answers = run_on_target(where, done)
        if as_json:
            records = [it or {"id": id_} for it, id_ in zip(answers, memories, strict=True)]
            results.print_json(records if records[1:] else records[0])
            return
        for it, id_ in zip(answers, memories, strict=True):
            output.show(output.one_line(f"{verb} #{id_}{f': {it.title}' if it else ''}"))

    return changed


delete = _each(
    "delete", "Deleted",
    "Delete the memories ID. `restore ID` brings one back while MEMORY_KEEP_DELETED lasts.",
    lambda memories, it: memories.delete(it),
)  # fmt: skip
pin = _each(
    "pin", "Pinned", "Pin the memories ID: they come first in every context of their project.",
    lambda memories, it: memories.update(it, pinned=True),
)  # fmt: skip
unpin = _each(
    "unpin", "Unpinned", "Unpin the memories ID: a context shows them only if they match.",
    lambda memories, it: memories.update(it, pinned=False),
)  # fmt: skip
confirm = _each(
    "confirm", "Confirmed", "Confirm that the memories ID are still true.",
    lambda memories, it: memories.confirm(it),
)  # fmt: skip


@command()
@options.id_argument
@click.argument("content", required=False)
@click.option("--title", metavar="TEXT", help="Another title.")
@click.option("--type", metavar="TYPE", shell_complete=options.types, help="Another type.")
@click.option("--tag", "tags", multiple=True, metavar="TAG",
              help="Replace the tags; '' removes all of them.")  # fmt: skip
@click.option("--ttl", metavar="TIME", callback=options.parsed_by(retention),
              help="New lifetime from now on, such as 30d; 0 removes the limit.")  # fmt: skip
@options.answer_options
def edit(memory: int, content: str | None, **params: Any) -> None:
    """Change the memory ID: its content, or what the options name.

    With neither, your EDITOR opens, with the title on the first line. - reads the content
    from standard input. `history` keeps the text before.
    """
    target = {name: params.pop(name) for name in ("as_json", *OPTIONS)}
    changes = _changes(content, **params)
    if not changes:
        if not output.is_terminal(sys.stdout):
            raise click.UsageError("Nothing to change: add CONTENT or an option.")
        changes = _edited(run_on_target(target, lambda memories: memories.get(memory)))
    changed = results.answered(target, lambda memories: memories.update(memory, **changes))
    _show_done("Changed", changed)


def _changes(
    content: str | None, *, title: str | None, type: str | None, tags: Sequence[str],  # noqa: A002
    ttl: timedelta | None,
) -> dict[str, Any]:  # fmt: skip
    text = output.read_piped() if content == "-" else content
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
@options.id_argument
@click.argument("new", metavar="NEW")
@options.answer_options
def supersede(memory: int, new: str, **params: Any) -> None:
    """Replace the memory ID with NEW: the id of another memory, or a text to save instead.

    Searches and contexts then omit the old one; `show` still shows it.
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

    changed = results.answered(params, superseded)
    output.show(output.one_line(f"#{memory} is replaced by #{changed.id}: {changed.title}"))


def restore_memory(memory: int, revision: int | None, params: dict[str, Any]) -> None:
    """Bring back a deleted memory as it was, or the text that a memory had in a revision."""

    async def back(memories: MemoryService) -> Observation:
        wanted = revision
        if wanted is None:
            newest, *older = await memories.history(memory)
            if newest.action != "deleted" or not older:
                raise CommandRefused(
                    f"#{memory} is not deleted; --revision restores an earlier text, and "
                    f"`agentops-memory history {memory}` shows them."
                )
            wanted = older[0].revision
        return await memories.restore(memory, wanted)

    _show_done("Restored", results.answered(params, back))


def _show_done(verb: str, changed: Observation) -> None:
    output.show(output.one_line(f"{verb} #{changed.id}: {changed.title}"))


REASONS = ("review_due", "expires_soon", "similar")


@command()
@options.project_option
@click.option("--reason", type=click.Choice(REASONS), help="Only memories due for this reason.")
@options.limit_option(default=20)
@click.option(
    "--before", metavar="NEXT", help="Continue after an earlier page, with the value at its end."
)
@options.answer_options
def review(**params: Any) -> None:
    """List the memories that need a review, newest reason first."""
    due = results.answered(params, lambda memories: memories.review(**params))
    if not due.items:
        output.say("No memory needs a review.")
        return
    rows = [
        (it.reason, output.ago(it.at), f"#{it.observation.id}", it.observation.title,
         "" if it.other is None else f"#{it.other.id} {it.other.title} ({it.score:.2f})")
        for it in due.items
    ]  # fmt: skip
    output.print_table(("REASON", "SINCE", "ID", "TITLE", "LIKE"), rows)
    if due.next:
        output.say(f"There is more: --before {due.next}")
