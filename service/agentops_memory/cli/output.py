"""What commands print, and how they end after an error.

Stored text may contain anything, even terminal escapes: `one_line` and `lines` make it harmless.
"""

import difflib
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from agentops_memory_client.contract import models as m
from agentops_memory_client.contract.models import MemoryServiceError, Progress, age_words

from ..errors import Damaged, Refusal, SettingRefused
from ..light import Lazy
from ..recall.text import printable

if TYPE_CHECKING:
    import json

    from rich import cells as rich_cells

    from ..memory import rows as instants
    from ..memory.access import Key
else:  # --help does not need them
    json, rich_cells = Lazy(None, "json"), Lazy(None, "rich.cells")
    instants = Lazy(__package__, "..memory.rows")


NAME = "agentops-memory"
LONGEST = 2000  # characters of an error; a program other than the service may have sent it

REFUSED = 1
LATER = 3  # the service is unreachable or busy: the same command may succeed later
INTERRUPTED = 130  # 128 + SIGINT, by the convention of shells
READER_GONE = 141  # 128 + SIGPIPE
TERMINATED = 143  # 128 + SIGTERM


class CommandRefused(Exception):
    """A command cannot do its work. The message is a sentence; `kind` is a key of HINTS."""

    def __init__(self, sentence: str, kind: str = "") -> None:
        super().__init__(sentence)
        self.kind = kind


FAILURES = (MemoryServiceError, Refusal, SettingRefused, CommandRefused)
"""Exceptions that end a command with their message."""


class NoDatabase(CommandRefused):
    """The database to read does not exist."""


class FileRefused(CommandRefused):
    """A file that the user named cannot be read or written."""


# Keys: the `kind` of an error, or the name of its class or of the nearest base class.
HINTS = {
    "NoDatabase": "Use --db for another file or --url for a service; `save` and `import` create "
    "the file.",
    "NoTenant": "`agentops-memory tenants list` shows the existing tenants.",
    "FileThere": "--force overwrites it.",
    "ArchiveThere": "--force overwrites it.",
    "DatabaseThere": "--force replaces it, and keeps the old files next to it.",
    "Damaged": "`agentops-memory doctor` shows the extent of the damage, and `agentops-memory "
    "restore` restores a backup.",
    "InUse": "Stop that service and run this again, or select another file with --db.",
    "StartRefused": "`agentops-memory doctor` checks the settings and files, and a start of the "
    "service upgrades an older database.",
    "SettingRefused": "`agentops-memory serve --help-all` describes every setting, and "
    "`agentops-memory status` shows what is running.",
    "Unreachable": "Check --url (or MEMORY_URL); without it the database file is used.",
    "Unauthenticated": "Put a key into MEMORY_API_KEY, or its file into --key-file; "
    "`agentops-memory keys create` creates one.",
    "Denied": "`agentops-memory keys list` shows what each key may do.",
    "NotFound": "`agentops-memory list` shows ids, `agentops-memory restore` brings back "
    "deleted memories, and `agentops-memory projects list` shows projects.",
    "TooLarge": "The service's MEMORY_MAX_UPLOAD sets the limit; working on the file directly "
    "has none.",
    **dict.fromkeys(("NotWhole", "TooMany", "Unavailable"), "Try again in a few seconds."),
}
MAY_BE_DONE = "The command may have succeeded nevertheless; trying again creates no duplicate."
TEMPORARY = {"NotWhole", "Unreachable", "TooMany", "Unavailable"}


@contextmanager
def file_errors() -> Iterator[None]:
    """Turn an OSError inside into FileRefused, except BrokenPipeError: the reader has left."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        sentence = f"{error.filename or 'A file'} cannot be used: {error.strerror}."
        raise FileRefused(str(error) if error.strerror is None else sentence) from error


def fail(error: Exception, *, has_hint: bool = True, is_start: bool = False) -> NoReturn:
    """Print an error and exit; only with a hint can the exit code be LATER."""
    kinds = [getattr(error, "kind", ""), *(it.__name__ for it in type(error).__mro__)]
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Damaged):
        cause = cause.__cause__
    if cause is not None:
        kinds = [Damaged.__name__]
    hint = next((HINTS[kind] for kind in kinds if kind in HINTS), "")
    if is_start:
        hint = hint or HINTS["StartRefused"]
    elif getattr(error, "may_be_done", False):
        hint = MAY_BE_DONE
    is_hinted = has_hint or is_start
    text = one_line(str(error)[:LONGEST])
    click.secho(f"{NAME}: {text}", err=True, fg="red" if is_hinted else None)
    if hint and is_hinted:
        click.echo(f"Hint: {hint}", err=True)
    sys.exit(REFUSED if TEMPORARY.isdisjoint(kinds) or not has_hint else LATER)


ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
TAB = 4
MOST_READ = 1024 * 1024  # bytes of standard input; every content is shorter
JUST_NOW = 5  # seconds; a shorter time ago is `just now`


def show(text: str, indent: int = 0, **style: Any) -> None:
    click.secho(" " * indent + cut(text.rstrip(), _columns_left(indent)), **style)


def is_piped() -> bool:
    return not is_terminal(sys.stdin) and sys.stdin is not None


def read_piped() -> str:
    """Return the text of standard input without its last line break."""
    if not is_piped():
        raise click.UsageError("- reads standard input, but standard input is empty.")
    content: bytes = sys.stdin.buffer.read(MOST_READ)
    return content.decode(errors="replace").removesuffix("\n").removesuffix("\r")


def ago(at: datetime) -> str:
    """Format a time for people: `3 minutes ago`, `in 2 days`."""
    seconds = (datetime.now(UTC) - at).total_seconds()
    if abs(seconds) < JUST_NOW:
        return "just now"
    is_below_a_minute = abs(seconds) < m.MINUTE
    amount = counted(int(abs(seconds)), "second") if is_below_a_minute else age_words(abs(seconds))
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


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, whose last column is cut at the terminal's width.

    rich's tables shorten every column, even ids, and take 50 ms to import.
    """
    table = [[one_line(str(cell)) for cell in row] for row in [headings, *rows]]
    widths = [max(map(rich_cells.cell_len, column)) for column in zip(*table, strict=True)]
    for number, row in enumerate(table):
        *first, last = map(rich_cells.set_cell_size, row, widths)
        start = "".join(f"{cell}  " for cell in first)
        text = start + cut(last.rstrip(), _columns_left(rich_cells.cell_len(start)))
        click.secho(text.rstrip(), bold=number == 0)


@contextmanager
def progress_bar(label: str, *, is_output_shown: bool = False) -> Iterator[Progress]:
    """Draw a progress bar on standard error, if that is a terminal; yield its callback.

    The callback takes the amount done and the total, in any unit. Print nothing inside, because
    the bar would overwrite it.
    """
    if not is_terminal(sys.stderr) or (is_output_shown and is_terminal(sys.stdout)):
        yield lambda _done, _total: None
        return
    from rich import progress as rich_progress  # noqa: PLC0415 - takes 50 ms, for terminals only
    from rich.console import Console  # noqa: PLC0415

    with rich_progress.Progress(console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def one_line(text: str) -> str:
    """Return the text on one line, without control characters."""
    return printable(" ".join(text.split()))


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, without control characters."""
    for line in text.split("\n"):
        yield printable(line.rstrip("\r").expandtabs(TAB))


def cut(text: str, columns: int | None) -> str:
    """Cut the text to a number of columns; an ellipsis replaces the rest."""
    if columns is None or rich_cells.cell_len(text) <= columns:
        return text
    return rich_cells.set_cell_size(text, max(columns, 2) - 1).rstrip() + ELLIPSIS


counted, size = m.counted, m.size


def count_memories(count: int) -> str:
    return counted(count, "memory", "memories")


def is_terminal(stream: Any) -> bool:
    return bool(stream is not None and not stream.closed and stream.isatty())


def _columns_left(taken: int) -> int | None:
    """Return the free columns of a terminal's line, or None if output is not a terminal."""
    return shutil.get_terminal_size().columns - taken if is_terminal(sys.stdout) else None


TIMES = ("_at", "_until")  # suffixes of fields that are times
INDENT = 4
METHODS = {
    "pinned": "because it is pinned",
    "topic_key": "its topic key contains the words",
    "recency": "as one of the newest: no word matched",
}
BY_WORDS = "by its words"
FIELDS = {"context": "what was saved just before it"}

Record = Mapping[str, Any]


def print_records(
    records: Sequence[Record],
    headings: Sequence[str],
    row: Callable[[Record], Sequence[object]] = lambda record: [*cells(record).values()],
) -> None:
    if has_flag("json"):
        click.echo(json.dumps(records))
    else:
        print_table(headings, [*map(row, records)])


def parts(noun: object, names: str) -> dict[str, Any]:
    """Return attributes as JSON values, by `names`; `key=attribute` renames one."""
    split = (name.partition("=") for name in names.split())
    values = {key: attrgetter(attribute or key)(noun) for key, _, attribute in split}
    ats = {it: instants.rendered(at) for it, at in values.items() if isinstance(at, datetime)}
    return values | ats


def key_names(keys: "Iterable[Key]") -> list[dict[str, str]]:
    return [{"id": key.id, "name": key.name} for key in keys]


def print_result(document: object, sentence: str) -> None:
    click.echo(json.dumps(document) if has_flag("json") else sentence)


def cells(record: Record) -> dict[str, object]:
    """Return a record for a table: None becomes empty, and a time relative to now."""
    names = [it for it in record if it.endswith(TIMES)]
    ats = {name: instants.parsed(str(record[name])) for name in names}
    return {
        name: ago(at) if (at := ats.get(name)) else "" if part is None else part
        for name, part in record.items()
    }


def has_flag(name: str) -> bool:
    """Whether the running command has the flag, which is not passed to its function."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def print_json(result: object) -> None:
    """Print a result, or a list of them, as the JSON that the REST API returns."""
    from ..agentops.models import json_bytes  # noqa: PLC0415 - it needs pydantic, for 0.1 s

    click.echo(json.dumps(json.loads(json_bytes(result))))


def print_hits(hits: m.Found) -> None:
    if has_flag("json"):
        print_json(hits)
    else:
        for hit in hits:
            key = f"  ({hit.topic_key})" if hit.topic_key else ""
            show(one_line(f"#{hit.id}  [{hit.type}] {hit.title}{key}"), bold=True)
            show(one_line(hit.content), INDENT)
            if hit.superseded_by:
                show(f"Superseded by {ids_of(hit.superseded_by)}.", INDENT, dim=True)
            show_explanation(hit.explain, INDENT)
        show_explanation(hits.explanation)
    _say_omitted(hits.omitted)


def print_context(context: m.Context) -> None:
    """Print the blocks that an agent runtime puts before a prompt, and their explanation."""
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
            show_explanation(memory.explain, INDENT)
        show_explanation(context.explanation)
    _say_omitted(context.omitted)


def say_each(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        say(one_line(sentence))


def show_explanation(explanation: m.Explanation | None, indent: int = 0) -> None:
    for sentence in explained(explanation or {}):
        show(one_line(sentence), indent, dim=True)


def explained(explanation: m.Explanation) -> Iterator[str]:
    """Yield the main members of the explanation of a memory, or of a response, in words."""
    if "place" in explanation:
        yield f"Place {explanation['place']}, {METHODS.get(explanation['method'], BY_WORDS)}."
    if matched := explanation.get("matched"):
        texts = (
            f"{it['term']} (for {it['instead_of']})" if it.get("instead_of") else str(it["term"])
            for it in matched
        )  # fmt: skip
        yield f"Matched: {', '.join(dict.fromkeys(texts))}."
    if fields := explanation.get("fields"):
        shares = sorted(fields.items(), key=lambda it: -it[1])
        names = (f"{FIELDS.get(name, name)} {it:.0%}" for name, it in shares if it >= 0.005)
        yield f"Where: {', '.join(names)}."
    if following := explanation.get("following"):
        share = sum(it["share"] for it in following)
        ids = ids_of([it["id"] for it in following])
        yield f"The memories saved right after it add {share:.0%}: {ids}."
    if terms := dict.fromkeys(chain.from_iterable(explanation.get("terms", ()))):
        yield f"Searched for: {', '.join(terms)}."
    if dropped := explanation.get("dropped"):
        yield f"Words not searched, as too common or too many: {', '.join(dropped)}."
    for word, meant in explanation.get("corrected", {}).items():
        yield f"No memory contains {word}; searched for {' or '.join(meant)} instead."
    if explanation.get("degraded"):
        yield "The search timed out; these are the newest memories instead."


def ids_of(memories: Sequence[int]) -> str:
    return ", ".join(f"#{it}" for it in memories)


def _say_omitted(count: int) -> None:
    if count:
        say(f"{count:,} more did not fit into one response.")


def differences(earlier: m.Revision | None, revision: m.Revision) -> Iterator[str]:
    """Yield the lines that a revision changed, with + and -; none for a deletion."""
    if revision.content is None:
        return
    compared = difflib.unified_diff(_lines_of(earlier), _lines_of(revision), n=0, lineterm="")
    for line in islice(compared, 2, None):  # without the names of files
        if not line.startswith("@@"):
            yield f"{line[0]} {line[1:]}"


def _lines_of(revision: m.Revision | None) -> list[str]:
    if revision is None or revision.content is None:
        return []
    fields = {"type": revision.type, "title": revision.title, "tags": ", ".join(revision.tags)}
    return [
        *(f"{name}: {one_line(text)}" for name, text in fields.items() if text),
        *lines(revision.content),
    ]
