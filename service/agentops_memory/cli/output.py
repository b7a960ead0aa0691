"""What commands print, and how one ends that cannot do its work.

What is stored may hold anything, escapes of a terminal too: `one_line` and `lines` are harmless.
"""

import difflib
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn
from unicodedata import combining, east_asian_width

import click
from click.core import ParameterSource

from agentops_memory_client.contract import models as m
from agentops_memory_client.contract.models import MemoryServiceError, Progress, age_words

from ..errors import Damaged, Refusal, SettingRefused
from ..light import Lazy
from ..recall.visible import printable

if TYPE_CHECKING:
    import json

    from ..memory import rows as instants
    from ..memory.access import Key
else:  # what a help does not need
    json, instants = Lazy(None, "json"), Lazy(__package__, "..memory.rows")


NAME = "agentops-memory"
LONGEST = 2000  # characters of a sentence: something else than the service may answer

REFUSED = 1
LATER = 3  # nobody answers, or it is busy: the same command may succeed later
INTERRUPTED = 130  # 128 and the number of the signal, as shells count
READER_GONE = 141  # 128 and SIGPIPE
TERMINATED = 143  # 128 and SIGTERM


class CommandRefused(Exception):
    """A command cannot do its work; its text is a sentence. A kind names what HINTS say of it."""

    def __init__(self, sentence: str, kind: str = "") -> None:
        super().__init__(sentence)
        self.kind = kind


FAILURES = (MemoryServiceError, Refusal, SettingRefused, CommandRefused)
"""What ends a command with a sentence, wherever it is raised."""


class NoDatabase(CommandRefused):
    """A file that is read is not there."""


class FileRefused(CommandRefused):
    """A file of the user's cannot be read or written as it is."""


# By the kind, by the name of the class, or by that of the nearest one above it.
HINTS = {
    "NoDatabase": "Use --db for another file or --url for a service; `save` and `import` create "
    "the file.",
    "NoTenant": "`agentops-memory tenants list` shows the existing tenants, and `tenants "
    "create` adds one.",
    "FileRefused": "Use another file, or check the permissions of this one.",
    "FileThere": "--force overwrites it.",
    "NotWhole": "Try again: the data received is not an export. No existing file was changed.",
    "Damaged": "`agentops-memory doctor` shows the extent of the damage, and `agentops-memory "
    "restore` restores a backup.",
    "NoService": "`agentops-memory serve` starts it; --url selects another service.",
    "ArchiveThere": "--force overwrites it.",
    "BackupRefused": "Choose another place with --to, or free some space there.",
    "SnapshotRefused": "Nothing was changed. A damaged database can be restored from an archive.",
    "ArchiveRefused": "Nothing was changed. Take another archive.",
    "DatabaseThere": "--force replaces it, and keeps the old files next to it.",
    "StillOpen": "Close the programs that have it open (agents, a shell) and run this again; "
    "databases already restored are skipped.",
    "InUse": "Stop that service, and run this again.",
    "RestoreRefused": "Fix the problem named above; `restore` can be run again.",
    "RedactionFileRefused": "Fix it, or choose another with --redaction-file.",
    "SealFileRefused": "Restore the file from a copy, or choose another with --seal-file.",
    "StartRefused": "Is it the right file? Starting the service on it upgrades it, or shows "
    "what is wrong.",
    "SettingRefused": "`agentops-memory serve --help-all` describes every setting.",
    "Misconfigured": "--url (or MEMORY_URL) looks like http://127.0.0.1:7437; MEMORY_API_KEY "
    "holds nothing but a key.",
    "Unreachable": "Check --url (or MEMORY_URL); without it the database file is used.",
    "UnexpectedAnswer": "Check --url (or MEMORY_URL): another program may be answering there.",
    "Unauthenticated": "Put a key into MEMORY_API_KEY, or its file into --key-file; "
    "`agentops-memory keys create` creates one.",
    "Denied": "`agentops-memory keys list` shows what each key may do.",
    "NotFound": "`agentops-memory list` shows ids, `agentops-memory restore` brings back "
    "deleted memories, and `agentops-memory projects list` shows projects.",
    "Conflict": "`agentops-memory history` shows what is stored now.",
    "TooLarge": "The service's MEMORY_MAX_UPLOAD sets the limit; working on the file directly "
    "has none.",
    "TooMany": "Wait a few seconds, and try again.",
    "Invalid": "The command's --help lists its arguments and options.",
    "OverQuota": "Erase what is not needed, or raise MEMORY_TENANT_QUOTA.",
    "Failed": "The service's log shows the reason.",
    "Unavailable": "Try again in a moment; nothing was stored.",
    "Exception": "The command's --help lists its arguments and options.",
}
OF_STARTS = {
    "SettingRefused": "`agentops-memory serve --help-all` describes every setting.",
    "InUse": "`agentops-memory status` shows what is running; --db selects another file.",
    "Exception": "`agentops-memory doctor` checks the settings and files, and says what to do.",
}
MAY_BE_DONE = "It may have been done all the same; trying again creates no duplicate."
PASSING = {"NotWhole", "Unreachable", "TooMany", "Unavailable"}


@contextmanager
def file_errors() -> Iterator[None]:
    """Inside, what the system says of a file is FileRefused; a reader that has left is not."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        sentence = f"{error.filename or 'A file'} cannot be used: {error.strerror}."
        raise FileRefused(str(error) if error.strerror is None else sentence) from error


def fail(error: Exception, *, has_hint: bool = True, is_start: bool = False) -> NoReturn:
    """End the program; without a hint the exit code does not tell whether to try again."""
    kinds = [getattr(error, "kind", ""), *(it.__name__ for it in type(error).__mro__)]
    text, code = str(error), REFUSED
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Damaged):
        cause = cause.__cause__
    if cause is not None:
        kinds = [Damaged.__name__]
    hints = OF_STARTS if is_start else HINTS
    hint = next(hints[kind] for kind in kinds if kind in hints)
    if is_start:
        if re.match("MEMORY_LISTEN: .* cannot be used: ", text):
            hint = f"`{NAME} status` shows what answers there; --listen selects another address."
    elif has_hint:
        text = one_line(text[:LONGEST])
        hint = MAY_BE_DONE if getattr(error, "may_be_done", False) else hint
        code = REFUSED if PASSING.isdisjoint(kinds) else LATER
    if has_hint or is_start:
        click.secho(f"{NAME}: {text}", err=True, fg="red")
        click.echo(f"Hint: {hint}", err=True)
    else:
        click.echo(f"{NAME}: {text}", err=True)
    sys.exit(code)


ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
TAB = 4
MOST_READ = 1024 * 1024  # bytes of standard input; the longest content has fewer
JUST_NOW = 5  # seconds


def show(text: str, indent: int = 0, **style: Any) -> None:
    click.secho(" " * indent + cut(text.rstrip(), _columns_left(indent)), **style)


def is_piped() -> bool:
    return not is_terminal(sys.stdin) and sys.stdin is not None


def read_piped() -> str:
    """The text of standard input, without the end of its last line."""
    if not is_piped():
        raise click.UsageError("- reads standard input, but standard input is empty.")
    content: bytes = sys.stdin.buffer.read(MOST_READ)
    return content.decode(errors="replace").removesuffix("\n").removesuffix("\r")


def ago(at: datetime) -> str:
    """`3 minutes ago`, `in 2 days`: for people; programs get the instant from --json."""
    seconds = (datetime.now(UTC) - at).total_seconds()
    if abs(seconds) < JUST_NOW:
        return "just now"
    is_short = abs(seconds) < m.MINUTE
    amount = counted(int(abs(seconds)), "second") if is_short else age_words(abs(seconds))
    return f"{amount} ago" if seconds > 0 else f"in {amount}"


def say(sentence: str) -> None:
    click.echo(sentence, err=True)


def confirm(question: str) -> None:
    if has_flag("yes"):
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("Confirmation needs a terminal; add --yes to go ahead.")
    if not click.confirm(question, err=True):
        say("Nothing was changed.")
        sys.exit(1)


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], *, is_fitted: bool = True
) -> None:
    """Print a table; one that is fitted to a terminal has bold headings and a cut last column.

    Not rich's: that shortens every column alike, ids too, and takes 50 ms to be there.
    """
    harmless = one_line if is_fitted else printable
    cells = [[harmless(str(cell)) for cell in row] for row in [headings, *rows]]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        *first, last = (padded(cell, wide) for cell, wide in zip(row, widths, strict=True))
        start = "".join(f"{cell}  " for cell in first)
        room = _columns_left(width(start)) if is_fitted else None
        text = (start + cut(last.rstrip(), room)).rstrip()
        click.echo(click.style(text, bold=True) if is_fitted and number == 0 else text)


@contextmanager
def progress_bar(
    label: str, *, beside_output: bool = False, step: tuple[int, int] | None = None
) -> Iterator[Progress | None]:
    """The callback of a progress bar on standard error; None if nobody watches it.

    It gets how much is done, of how much, in any unit. A bar that is one of several for the
    steps of a command gets which step of how many it is, and leaves nothing behind. Nothing
    may be printed inside: the bar would be drawn over it.
    """
    if not is_terminal(sys.stderr) or (beside_output and is_terminal(sys.stdout)):
        yield None
        return
    from rich import progress as rich_progress  # noqa: PLC0415 - for a terminal alone: it takes 50 ms
    from rich.console import Console  # noqa: PLC0415

    columns = (
        rich_progress.TextColumn("{task.description}"), rich_progress.BarColumn(),
        rich_progress.TaskProgressColumn(), rich_progress.TimeElapsedColumn(),
    )  # fmt: skip
    done, of = step or (0, None)
    with rich_progress.Progress(
        *columns, console=Console(stderr=True), redirect_stdout=False, transient=step is not None
    ) as bar:
        task = bar.add_task(label, completed=done, total=of)

        def advance(done: int, of: int | None) -> None:
            bar.update(task, completed=done, total=of)

        yield advance


def one_line(text: str) -> str:
    """The text in one line, without anything that a terminal would obey."""
    return printable(" ".join(text.split()))


def lines(text: str) -> Iterator[str]:
    """The lines of a text, without anything that a terminal would obey."""
    for line in text.split("\n"):
        yield printable(line.rstrip("\r").expandtabs(TAB))


def width(text: str) -> int:
    """The columns that a terminal takes for it."""
    return sum(0 if combining(it) else 2 if east_asian_width(it) in "WF" else 1 for it in text)


def cut(text: str, room: int | None) -> str:
    """The text, at most so wide; an ellipsis stands for what is cut off."""
    if room is None or width(text) <= room:
        return text
    kept, left = "", max(room, 2) - 1
    for letter in text:
        left -= width(letter)
        if left < 0:
            break
        kept += letter
    return kept.rstrip() + ELLIPSIS


def padded(text: str, room: int) -> str:
    return text + " " * (room - width(text))


def size(count: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} bytes"


counted = m.counted


def count_memories(count: int) -> str:
    return counted(count, "memory", "memories")


def is_terminal(stream: Any) -> bool:
    return bool(stream is not None and not stream.closed and stream.isatty())


def _columns_left(taken: int) -> int | None:
    """In a line of the terminal; of what is none, no number."""
    return shutil.get_terminal_size().columns - taken if is_terminal(sys.stdout) else None


UNSET_IS_EMPTY = {"tags", "supersedes", "superseded_by"}
HEADERS = {"redacted", "omitted", "warning"}  # what the API says in headers
INSTANTS = ("_at", "_until")  # how the names of parts end that are instants
INDENT = 4
MOST_LINES = 400  # of a content that is compared line by line: a longer one would take long
METHODS = {
    "pinned": "because it is pinned",
    "topic_key": "its topic key contains the words",
    "recency": "as one of the newest: no word matched",
}
BY_WORDS = "by its words"
STRANGE = "This version cannot show this kind of explanation."
FIELDS = {"context": "what was saved just before it"}
TIERS = {"every": " (all of them are in it)"}

Record = Mapping[str, Any]


def print_records(
    records: Sequence[Record],
    headings: Sequence[str],
    row: Callable[[Record], Sequence[object]] = lambda record: [*cells(record).values()],
) -> None:
    if has_flag("json"):
        click.echo(json.dumps(records))
    else:
        print_table(headings, [*map(row, records)], is_fitted=False)


def parts(noun: object, names: str) -> dict[str, Any]:
    """The named parts of a noun, as JSON has them; `shown=own.part` shows one by another name."""
    split = (name.partition("=") for name in names.split())
    values = {field: attrgetter(own or field)(noun) for field, _, own in split}
    ats = {it: instants.rendered(at) for it, at in values.items() if isinstance(at, datetime)}
    return values | ats


def named(keys: "Iterable[Key]") -> list[dict[str, str]]:
    return [{"id": key.id, "name": key.name} for key in keys]


def tell(document: object, sentence: str) -> None:
    click.echo(json.dumps(document) if has_flag("json") else sentence)


def cells(record: Record) -> dict[str, object]:
    """The parts of a record as a table shows them: what is absent is empty, an instant is ago."""
    names = [it for it in record if it.endswith(INSTANTS)]
    ats = {name: instants.parsed(str(record[name])) for name in names}
    return {
        name: ago(at) if (at := ats.get(name)) else "" if part is None else part
        for name, part in record.items()
    }


def has_flag(name: str) -> bool:
    """Whether the command that runs was given the flag, which its function does not take."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def print_json(noun: object) -> None:
    click.echo(json.dumps(json_of(noun)))


def json_of(noun: object) -> Any:
    """A noun, or several, as the API answers them; parts without a value are absent."""
    if isinstance(noun, m.Found):
        hits = json_of(noun.hits)
        return {"results": hits, "explain": noun.explanation} if noun.explanation else hits
    if isinstance(noun, m.Context):
        return {
            "recent_sessions": [{"summary": summary} for summary in noun.summaries],
            "recent_observations": json_of(noun.observations),
            **({"explain": noun.explanation} if noun.explanation else {}),
        }
    if isinstance(noun, datetime):
        return noun.isoformat().replace("+00:00", "Z")
    if isinstance(noun, list | tuple):
        return [json_of(each) for each in noun]
    if is_dataclass(noun):
        parts = {field.name: getattr(noun, field.name) for field in fields(noun)}
        return {
            name: json_of(part)
            for name, part in parts.items()
            if name not in HEADERS and part is not None and part is not False
            and not (part == () and name in UNSET_IS_EMPTY)
        }  # fmt: skip
    return noun


def print_found(hits: m.Found) -> None:
    if has_flag("json"):
        print_json(hits)
    else:
        for hit in hits:
            key = f"  ({hit.topic_key})" if hit.topic_key else ""
            show(one_line(f"#{hit.id}  [{hit.type}] {hit.title}{key}"), bold=True)
            show(one_line(hit.content), INDENT)
            if hit.superseded_by:
                show(f"Superseded by {ids_of(hit.superseded_by)}.", INDENT, dim=True)
            show_explanation(reasons, hit.explain, INDENT)
        show_explanation(understood, hits.explanation)
    _say_omitted(hits.omitted)


def print_context(context: m.Context) -> None:
    """The blocks that an agent runtime puts before a prompt, and why each line is in them."""
    if has_flag("json"):
        print_json(context)
    else:
        summaries = [f"- {summary}" for summary in context.summaries]
        memories = [f"- [{it.type}] {it.title}: {it.content}" for it in context.observations]
        for name, entries in (("sessions", summaries), ("context", memories)):
            if entries:
                block = [line for entry in entries for line in lines(entry)]
                click.echo("\n".join([f"<memory:{name}>", *block, f"</memory:{name}>"]))
        for memory in context.observations if context.explanation else ():
            show(one_line(f"[{memory.type}] {memory.title}"), bold=True)
            show_explanation(reasons, memory.explain, INDENT)
        show_explanation(understood, context.explanation)
    _say_omitted(context.omitted)


def say_each(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        say(one_line(sentence))


def show_explanation(
    explain: Callable[[m.Explanation], Iterator[str]], of: m.Explanation | None, indent: int = 0
) -> None:
    """Its sentences; another service may have it in another shape, as no model bounds it."""
    try:
        sentences = list(explain(of)) if of else []
    except (AttributeError, LookupError, TypeError, ValueError):
        sentences = [STRANGE]
    for sentence in sentences:
        show(one_line(sentence), indent, dim=True)


def reasons(explanation: m.Explanation) -> Iterator[str]:
    method = METHODS.get(explanation.get("method", ""), BY_WORDS)
    tier = TIERS.get(explanation.get("tier", ""), "") if method == BY_WORDS else ""
    yield f"Place {explanation.get('place', '?')}, {method}{tier}."
    if matched := explanation.get("matched"):
        terms = (
            f"{it['term']} (for {it['instead_of']})" if it.get("instead_of") else str(it["term"])
            for it in matched
        )  # fmt: skip
        yield f"Matched: {', '.join(dict.fromkeys(terms))}."
    if fields := explanation.get("fields"):
        shares = sorted(fields.items(), key=lambda it: -it[1])
        names = (f"{FIELDS.get(name, name)} {it:.0%}" for name, it in shares if it >= 0.005)
        score = f"Score {explanation.get('score', 0):.3g}; lower is better."
        yield f"Where: {', '.join(names)}. {score}"
    if following := explanation.get("following"):
        share = sum(it["share"] for it in following)
        ids = ids_of([it["id"] for it in following])
        yield f"The memories saved right after it add {share:.0%}: {ids}."
    if explanation.get("store_id"):
        yield f"From the memory store {explanation['store_id']}."
    if older := explanation.get("superseded"):
        yield f"It supersedes {ids_of(older)}."
    if explanation.get("content_cut"):
        yield "The content is cut here."


def understood(explanation: m.Explanation) -> Iterator[str]:
    terms = dict.fromkeys(term for sentence in explanation.get("terms", ()) for term in sentence)
    if terms:
        yield f"Searched for: {', '.join(terms)}."
    if dropped := explanation.get("dropped"):
        yield f"Words not searched, as too common or too many: {', '.join(dropped)}."
    for word, meant in explanation.get("corrected", {}).items():
        yield f"No memory contains {word}; searched for {' or '.join(meant)} instead."
    if explanation.get("degraded"):
        yield "The search timed out; these are the newest memories instead."
    if explanation.get("timed_out"):
        yield "The explanation timed out and is incomplete."


def ids_of(memories: Sequence[int]) -> str:
    return ", ".join(f"#{it}" for it in memories)


def _say_omitted(count: int) -> None:
    if count:
        say(f"{count:,} more did not fit into one response.")


def differences(earlier: m.Revision | None, revision: m.Revision) -> Iterator[str]:
    if revision.content is None:
        return  # a deletion
    if earlier is None or earlier.content is None:
        yield f"title: {one_line(revision.title or '')}"
        if revision.tags:
            yield f"tags: {_tags(revision)}"
        yield from (f"+ {line}" for line in lines(revision.content))
        return
    for name in ("type", "title"):
        before, after = (one_line(getattr(it, name) or "") for it in (earlier, revision))
        if before != after:
            yield f"{name}: {before} -> {after}"
    if earlier.tags != revision.tags:
        yield f"tags: {_tags(earlier)} -> {_tags(revision)}"
    if earlier.content == revision.content:
        return
    old, new = list(lines(earlier.content)), list(lines(revision.content))
    if max(len(old), len(new)) > MOST_LINES:
        yield f"content: {len(old)} lines -> {len(new)} lines"
        return
    compared = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
    changed = [line for line in compared if not line.startswith("@@")]
    yield from (f"{line[0]} {line[1:]}" for line in changed)
    if not changed:
        yield "content: only invisible characters changed"


def _tags(revision: m.Revision) -> str:
    return one_line(", ".join(revision.tags)) or "none"
