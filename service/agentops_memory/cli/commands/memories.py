"""The commands on memories: save, find, show, change and review."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import click
from click.core import ParameterSource

from agentops_memory_client.contract.models import Context, Found, NotFound, Observation
from agentops_memory_client.contract.service import MemoryService

from ...memory.space import project_name
from ...settings import retention_period
from .. import output as out, target as o
from ..place import now
from ..program import command, is_id
from ..target import run_on_target

SAVED = {
    "created": "Saved as new #{0.id}{1}.",
    "updated": "Updated #{0.id}{1} (revision {0.revision_count}).",
    "deduplicated": "Already known as #{0.id}{1} (seen {0.duplicate_count} times).",
}
LONGEST_TITLE = 60  # characters of a title taken from the content

FILTERS = ("type", "exclude_types", "tag", "scope", "before")
MOST_NAMED = 10  # most other projects named after an empty result

_EXPLAIN = o.flag("--explain", help="Explain why each memory was found.")


@command(
    o.argument("title", metavar="[TITLE] CONTENT"),
    o.argument("content", required=False, metavar=""),
    o.HERE,
    o.option("--type", default="discovery", show_default=True, shell_complete=o.types,
             help="Type of the memory, such as decision, bugfix or config."),
    o.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag; may be repeated."),
    o.option("--topic-key", metavar="KEY",
             help="Topic of the memory; a save with the same key updates it."),
    o.option("--scope", metavar="NAME", help="A global memory is visible in every project."),
    o.option("--session", "session_id", metavar="ID",
             help="Session to save it in. [default: cli:PROJECT:DATE]"),
    o.option("--ttl", metavar="TIME", callback=o.parsed_by(retention_period),
             help="How long the memory stays valid, such as 30d."),
    o.flag("--pinned", help="Show it first in every context of the project."),
    o.option("--supersedes", multiple=True, metavar="ID", type=o.MemoryId(), shell_complete=o.ids,
             help="A memory that this one replaces; may be repeated."),
    *o.ANSWER,
)  # fmt: skip
def save(title: str, content: str | None, project: str, **params: Any) -> None:
    """Save a memory: a text alone, or a title and its content.

    The project is that of the repository you are in, and the session is today's. CONTENT is read
    from standard input if it is - or comes through a pipe. The same topic key updates the memory
    that has it; the same text again within MEMORY_DEDUPE_WINDOW is counted, and not stored twice.
    """
    if not project:
        raise click.UsageError("A memory needs a project: set --project or MEMORY_PROJECT.")
    title, text = _titled(title, content)
    params |= {"project": project, "title": title, "content": text}
    params["pinned"] = params["pinned"] or None
    params["session_id"] = params["session_id"] or f"cli:{project_name(project)}:{now():%Y-%m-%d}"
    saved = run_on_target(params, lambda it: it.save(**params), may_make=True)
    source = click.get_current_context().get_parameter_source("project")
    is_implied = source is ParameterSource.DEFAULT  # so the user may not expect it
    where = f" in the project {project_name(project)}" if is_implied else ""
    if out.has_flag("json"):
        out.print_json(saved)
    else:
        out.show(out.one_line(SAVED[saved.action].format(saved, where)))
    if saved.redacted:
        out.say(f"Secrets removed: {out.counted(saved.redacted, 'secret')}.")
    if saved.warning:
        out.say(out.one_line(f"Warning: {saved.warning}."))


def _titled(title: str, content: str | None) -> tuple[str, str]:
    """Return title and content; the title of a text alone is its start or first line."""
    if content == "-" or (content is None and out.is_piped()):
        piped = out.read_piped()
        if piped or content == "-":
            return title, piped
    if content is not None:
        return title, content
    first, _, below = title.strip().partition("\n")
    if below.strip():
        return first.strip(), below.strip()
    return out.cut(first.rstrip("."), LONGEST_TITLE), first


@command(
    o.HERE, o.TYPE, *o.FILTERS, o.limit(20),
    o.option("--before", metavar="ID", type=o.MemoryId(),
             help="Only memories older than this one."),
    *o.ANSWER,
)  # fmt: skip
def list_(limit: int, **params: Any) -> None:
    """List the memories of the project, newest first."""

    async def listed(memories: MemoryService) -> tuple[list[Observation], list[str]]:
        # One more row shows whether there is another page.
        rows = await memories.recent(limit=limit + 1, **params)
        if not rows:
            return rows, await _nothing(memories, "No memory was found", params)
        more = [f"There is more: --before {rows[limit - 1].id}"] if len(rows) > limit else []
        return rows[:limit], more

    rows, notes = run_on_target(params, listed)
    if out.has_flag("json"):
        out.print_json(rows)
    elif rows:
        cells = [
            (f"#{it.id}", out.ago(it.updated_at), it.type,
             f"{'(pinned) ' * it.pinned}{'(replaced) ' * bool(it.superseded_by)}{it.title}")
            for it in rows
        ]  # fmt: skip
        out.print_table(("ID", "CHANGED", "TYPE", "TITLE"), cells)
    out.say_each(notes)


@command(o.ID, *o.ANSWER)
def show_(memory: int, **params: Any) -> None:
    """Show the memory ID in full."""
    it = o.answered(params, lambda memories: memories.get(memory))
    out.show(out.one_line(f"#{it.id}  [{it.type}] {it.title}"), bold=True)
    revisions = f", revision {it.revision_count}" if it.revision_count > 1 else ""
    ats = {
        "changed": None if it.updated_at == it.created_at else it.updated_at,
        "confirmed": it.confirmed_at, "review": it.review_at, "expires": it.expires_at,
    }  # fmt: skip
    facts: dict[str, Any] = {
        "project": it.project if it.scope == "project" else f"{it.project} ({it.scope})",
        "session": it.session_id, "saved": f"{out.ago(it.created_at)}{revisions}",
        **{name: at and out.ago(at) for name, at in ats.items()},
        "topic key": it.topic_key, "tags": ", ".join(it.tags), "pinned": it.pinned and "yes",
        "supersedes": out.ids_of(it.supersedes), "replaced by": out.ids_of(it.superseded_by),
    }  # fmt: skip
    for name, fact in facts.items():
        if fact:
            out.show(f"{name:<13}{out.one_line(fact)}", indent=2, dim=True)
    click.echo()
    for line in out.lines(it.content):
        click.echo(line)


@command(
    o.argument("words", nargs=-1, required=True), o.HERE, o.TYPE, *o.FILTERS, o.limit(10),
    o.flag("--superseded", help="Include memories that another one replaces."), _EXPLAIN,
    *o.ANSWER,
)  # fmt: skip
def search(words: Sequence[str], **params: Any) -> None:
    """Find memories of the project, and global ones, by WORDS, best match first."""
    query = " ".join(words)

    async def searched(memories: MemoryService) -> tuple[Found, list[str]]:
        hits = await memories.search(query, **params)
        if hits.hits:
            return hits, []
        every = await memories.search(query, **params | {"superseded": True})
        return hits, await _nothing(memories, "Nothing was found", params, len(every.hits))

    hits, notes = run_on_target(params, searched)
    out.print_hits(hits)
    out.say_each(notes)


@command(
    o.argument("prompt", nargs=-1), o.HERE, *o.FILTERS, o.limit(5), _EXPLAIN, *o.ANSWER
)  # fmt: skip
def context(prompt: Sequence[str], **params: Any) -> None:
    """Preview the context that an agent of the project would get for PROMPT.

    Without a prompt it shows the newest memories; without a project, only global ones.
    """

    async def fetched(memories: MemoryService) -> tuple[Context, list[str]]:
        result = await memories.context(query=" ".join(prompt) or None, **params)
        if result.observations or result.summaries:
            return result, []
        return result, await _nothing(memories, "The context would be empty", params)

    result, notes = run_on_target(params, fetched)
    out.print_context(result)
    out.say_each(notes)


@command(
    o.ID,
    o.option("--before", type=click.IntRange(1, 1000), default=3, show_default=True),
    o.option("--after", type=click.IntRange(1, 1000), default=3, show_default=True),
    *o.ANSWER,
)
def timeline(memory: int, before: int, after: int, **params: Any) -> None:
    """Show the memories saved before and after the memory ID in its project."""
    entries = o.answered(params, lambda it: it.timeline(memory, before=before, after=after))
    rows = [
        (">" if it.id == memory else "", f"#{it.id}", out.ago(it.created_at), it.type, it.title)
        for it in entries
    ]
    out.print_table(("", "ID", "SAVED", "TYPE", "TITLE"), rows)


@command(o.ID, *o.ANSWER)
def history(memory: int, **params: Any) -> None:
    """Show the revisions of the memory ID and their changes, newest first."""
    revisions = o.answered(params, lambda memories: memories.history(memory))
    for revision, earlier in pairwise([*revisions, None]):
        assert revision is not None  # only the last `earlier` is None
        at = out.ago(revision.created_at)
        out.show(f"{revision.revision}  {out.one_line(revision.action)}  {at}", bold=True)
        for line in out.differences(earlier, revision):
            out.show(line, indent=3)


@command(
    o.PROJECT_OPTION, o.limit(20),
    o.option("--before", metavar="ID", help="Only sessions older than this one."), *o.ANSWER,
)  # fmt: skip
def sessions(**params: Any) -> None:
    """List the sessions of the project, or of all projects, newest first."""
    rows = o.answered(params, lambda memories: memories.sessions(**params))
    if not rows:
        out.say("There are no sessions.")
        return
    cells = [
        (it.id, it.project, out.ago(it.started_at), "ended" if it.ended_at else "open",
         it.message_count, it.summary or "")
        for it in rows
    ]  # fmt: skip
    out.print_table(("ID", "PROJECT", "STARTED", "STATE", "MESSAGES", "SUMMARY"), cells)


@command(
    o.PROJECT_OPTION, o.flag("--storage", help="Show how the tenants' files use their space."),
    *o.ANSWER,
)  # fmt: skip
def stats(project: str | None, storage: bool, **params: Any) -> None:
    """Show how much is stored, in the project or in all projects.

    --storage shows what the files contain, how much of it has a retention time, and
    what the next sweep would remove with the settings of this environment.
    """
    if storage:
        # Imported here: it loads the code for files, which the memories of a service do not need.
        from .databases import print_storage  # noqa: PLC0415

        print_storage(params)
        return
    totals = o.answered(params, lambda memories: memories.stats(project))
    observations = out.counted(totals.total_observations, "observation")
    own_sessions = out.counted(totals.total_sessions, "session")
    where = f" in the project {project_name(project)}" if project else ""
    out.show(out.one_line(f"{observations} and {own_sessions}{where}"))
    for name in totals.projects if not project else ():
        out.show(out.one_line(name), indent=2)


async def _nothing(
    memories: MemoryService, sentence: str, options: Mapping[str, Any], replaced: int = 0
) -> list[str]:
    """Explain an empty result: the project, the filters, and hidden memories.

    `replaced` is the number of matches that are hidden because other memories replace them.
    """
    stats = await memories.stats(options["project"])
    count, own = stats.total_observations, project_name(options["project"] or "")
    where = f" in the project {own}, which has {out.count_memories(count)}" if own else ""
    if own and not count:
        where = f": the project {own} has no memories"
    sentences = [f"{sentence}{where}."]
    filters = [f"--{it.replace('_', '-').removesuffix('s')}" for it in FILTERS if options.get(it)]
    if filters and count:
        sentences.append(f"Filtered out: memories that do not match {' and '.join(filters)}.")
    if replaced:
        by_others = f"{out.count_memories(replaced)} replaced by another"
        sentences.append(f"Hidden: {by_others}; --superseded shows them.")
    others = [it for it in stats.projects if it != own]
    if others and own:
        more = f" and {len(others) - MOST_NAMED:,} more" if len(others) > MOST_NAMED else ""
        names = f"{', '.join(others[:MOST_NAMED])}{more}"
        sentences.append(f"Other projects: {names}. --project '' searches all projects.")
    return sentences


Work = Callable[[MemoryService, int], Awaitable[Observation | str | None]]


def _each(name: str, verb: str, work: Work, help: str) -> click.Command:  # noqa: A002 - click's
    @command(o.IDS, *o.ANSWER, name=name, help=help)
    def changed(memories: Sequence[int], **params: Any) -> None:
        async def change_all(service: MemoryService) -> list[Observation | None]:
            for it in memories:  # change all memories, or none
                try:
                    await service.get(it)
                except NotFound as error:
                    raise NotFound(f"There is no memory #{it}; nothing was changed.") from error
            results = [await work(service, it) for it in memories]
            return [it if isinstance(it, Observation) else None for it in results]

        results = run_on_target(params, change_all)
        if out.has_flag("json"):
            records = [it or {"id": id_} for it, id_ in zip(results, memories, strict=True)]
            out.print_json(records if records[1:] else records[0])
            return
        for it, id_ in zip(results, memories, strict=True):
            out.show(out.one_line(f"{verb} #{id_}{f': {it.title}' if it else ''}"))

    return changed


delete = _each(
    "delete", "Deleted", lambda memories, it: memories.delete(it),
    "Delete the memories ID. `restore ID` brings one back while MEMORY_KEEP_DELETED lasts.",
)  # fmt: skip
pin = _each(
    "pin", "Pinned", lambda memories, it: memories.update(it, pinned=True),
    "Pin the memories ID: they come first in every context of their project.",
)  # fmt: skip
unpin = _each(
    "unpin", "Unpinned", lambda memories, it: memories.update(it, pinned=False),
    "Unpin the memories ID: a context shows them only if they match.",
)  # fmt: skip
confirm = _each(
    "confirm", "Confirmed", lambda memories, it: memories.confirm(it),
    "Confirm that the memories ID are still true.",
)  # fmt: skip


@command(
    o.ID,
    o.argument("content", required=False),
    o.option("--title", metavar="TEXT", help="Another title."),
    o.option("--type", metavar="TYPE", shell_complete=o.types, help="Another type."),
    o.option("--tag", "tags", multiple=True, metavar="TAG",
             help="Replace the tags; '' removes all of them."),
    o.option("--ttl", metavar="TIME", callback=o.parsed_by(retention_period),
             help="New lifetime from now on, such as 30d; 0 removes the limit."),
    *o.ANSWER,
)  # fmt: skip
def edit(
    memory: int, content: str | None, tags: Sequence[str], ttl: timedelta | None, **params: Any
) -> None:
    """Change the memory ID: its content, or the fields that the options name.

    - reads the content from standard input. `history` keeps the text before.
    """
    text = out.read_piped() if content == "-" else content
    named = {"content": text, "title": params.pop("title"), "type": params.pop("type")}
    changes: dict[str, Any] = {name: it for name, it in named.items() if it is not None}
    if tags:
        changes["tags"] = [it for it in tags if it]
    if ttl is not None:
        changes |= {"ttl": ttl} if ttl else {"expires_at": None}
    if not changes:
        raise click.UsageError("Nothing to change: add CONTENT or an option.")
    changed = o.answered(params, lambda memories: memories.update(memory, **changes))
    out.show(out.one_line(f"Changed #{changed.id}: {changed.title}"))


@command(o.ID, o.argument("new", metavar="NEW"), *o.ANSWER)
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

    changed = o.answered(params, superseded)
    out.show(out.one_line(f"#{memory} is replaced by #{changed.id}: {changed.title}"))


def restore_memory(memory: int, revision: int | None, params: dict[str, Any]) -> None:
    """Restore a deleted memory, or the text of a revision."""

    async def restored(memories: MemoryService) -> Observation:
        if revision is not None:
            return await memories.restore(memory, revision)
        newest, *older = await memories.history(memory)
        if newest.action != "deleted" or not older:
            raise out.CommandRefused(
                f"#{memory} is not deleted; --revision restores an earlier text, and "
                f"`agentops-memory history {memory}` shows them."
            )
        return await memories.restore(memory, older[0].revision)

    changed = o.answered(params, restored)
    out.show(out.one_line(f"Restored #{changed.id}: {changed.title}"))


@command(
    o.PROJECT_OPTION,
    o.option("--reason", type=click.Choice(("review_due", "expires_soon", "similar")),
             help="Only memories due for this reason."),
    o.limit(20),
    o.option("--before", metavar="NEXT",
             help="Continue after an earlier page, with the value at its end."),
    *o.ANSWER,
)  # fmt: skip
def review(**params: Any) -> None:
    """List the memories that need a review, newest reason first."""
    due = o.answered(params, lambda memories: memories.review(**params))
    if not due.items:
        out.say("No memory needs a review.")
        return
    rows = [
        (it.reason, out.ago(it.at), f"#{it.observation.id}", it.observation.title,
         "" if it.other is None else f"#{it.other.id} {it.other.title} ({it.score:.2f})")
        for it in due.items
    ]  # fmt: skip
    out.print_table(("REASON", "SINCE", "ID", "TITLE", "LIKE"), rows)
    if due.next:
        out.say(f"There is more: --before {due.next}")
