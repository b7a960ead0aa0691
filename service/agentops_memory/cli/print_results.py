"""The service's answers: for people, with the reasons if wanted, or the JSON of its REST API."""

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from agentops_memory_client.contract.models import (
    Context,
    Explanation,
    Found,
    Observation,
    Revision,
    Saved,
)
from agentops_memory_client.contract.service import MemoryService

from ..memory.model.space import project_name
from ..recall.text.instants import parsed, rendered
from .output import ago, counted, lines, one_line, print_table, say, show

if TYPE_CHECKING:
    from ..memory.model.keys import Key

DONE = {
    "created": "Saved as new #{0.id}{1}.",
    "updated": "Updated #{0.id}{1} (revision {0.revision_count}).",
    "deduplicated": "Already known as #{0.id}{1} (seen {0.duplicate_count} times).",
}
UNSET_IS_EMPTY = {"tags", "supersedes", "superseded_by"}
HEADERS = {"redacted", "omitted", "warning"}  # what the API says in headers
INSTANTS = ("_at", "_until")  # how the names of parts end that are instants
INDENT = 4
FILTERS = ("type", "exclude_types", "tag", "scope", "before")
MOST_NAMED = 10  # other projects of an answer that has nothing
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
    *,
    as_json: bool,
) -> None:
    """Print records as JSON, or a row of each as a table with all that is in them."""
    if as_json:
        click.echo(json.dumps(records))
    else:
        print_table(headings, [*map(row, records)], is_fitted=False)


def parts(noun: object, names: str) -> dict[str, Any]:
    """The named parts of a noun, as JSON has them; `shown=own` shows a part by another name."""
    split = (name.partition("=") for name in names.split())
    values = {shown: getattr(noun, own or shown) for shown, _, own in split}
    return {name: rendered(it) if isinstance(it, datetime) else it for name, it in values.items()}


def named(keys: "Iterable[Key]") -> list[dict[str, str]]:
    return [{"id": key.id, "name": key.name} for key in keys]


def tell(document: object, sentence: str, *, as_json: bool) -> None:
    click.echo(json.dumps(document) if as_json else sentence)


def cells(record: Record) -> dict[str, object]:
    """The parts of a record as a table shows them: what is absent is empty, an instant is ago."""
    return {name: "" if part is None else _cell(name, part) for name, part in record.items()}


def _cell(name: str, part: object) -> object:
    at = parsed(str(part)) if name.endswith(INSTANTS) else None
    return part if at is None else ago(at)


def print_json(noun: object) -> None:
    click.echo(json.dumps(json_of(noun)))


def json_of(noun: object) -> Any:
    """A noun, or several, as the API answers them; parts without a value are absent."""
    if isinstance(noun, Found):
        return _found(noun)
    if isinstance(noun, Context):
        return _context(noun)
    if isinstance(noun, datetime):
        return noun.isoformat().replace("+00:00", "Z")
    if isinstance(noun, list | tuple):
        return [json_of(each) for each in noun]
    if is_dataclass(noun):
        parts = {field.name: getattr(noun, field.name) for field in fields(noun)}
        return {name: json_of(part) for name, part in parts.items() if _is_shown(name, part)}
    return noun


def _found(found: Found) -> Any:
    hits = json_of(found.hits)
    return _explained({"results": hits}, found.explanation) if found.explanation else hits


def _context(context: Context) -> Any:
    answer = {
        "recent_sessions": [{"summary": summary} for summary in context.summaries],
        "recent_observations": json_of(context.observations),
    }
    return _explained(answer, context.explanation)


def _explained(answer: dict[str, Any], explanation: Mapping[str, Any] | None) -> dict[str, Any]:
    return answer | {"explain": explanation} if explanation else answer


def _is_shown(name: str, part: object) -> bool:
    is_unset = part is None or part is False or (part == () and name in UNSET_IS_EMPTY)
    return name not in HEADERS and not is_unset


def print_saved(saved: Saved, where: str, *, as_json: bool) -> None:
    """What became of a save; on standard error, what the service did not store or warns of."""
    if as_json:
        print_json(saved)
    else:
        show(one_line(DONE[saved.action].format(saved, where)))
    if saved.redacted:
        say(f"Secrets removed: {counted(saved.redacted, 'secret')}.")
    if saved.warning:
        say(one_line(f"Warning: {saved.warning}."))


def print_found(found: Found, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        for hit in found:
            key = f"  ({hit.topic_key})" if hit.topic_key else ""
            show(one_line(f"#{hit.id}  [{hit.type}] {hit.title}{key}"), bold=True)
            show(one_line(hit.content), INDENT)
            if hit.superseded_by:
                show(f"Superseded by {ids_of(hit.superseded_by)}.", INDENT, dim=True)
            _explain(hit.explain)
        _understand(found.explanation)
    _say_omitted(found.omitted)


def print_context(context: Context, *, as_json: bool) -> None:
    """The blocks that an agent runtime puts before a prompt, and why each line is in them."""
    if as_json:
        print_json(context)
    else:
        summaries = [f"- {summary}" for summary in context.summaries]
        memories = [f"- [{it.type}] {it.title}: {it.content}" for it in context.observations]
        for line in (*_block("sessions", summaries), *_block("context", memories)):
            click.echo(line)
        for memory in context.observations if context.explanation else ():
            show(one_line(f"[{memory.type}] {memory.title}"), bold=True)
            _explain(memory.explain)
        _understand(context.explanation)
    _say_omitted(context.omitted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What an answer without rows leaves out, so that nobody takes it for all there is."""

    in_project: int
    projects: Sequence[str]  # the others, by name
    project: str | None
    replaced: int  # memories that would have been found, had others not replaced them


async def elsewhere(memories: MemoryService, project: str | None, replaced: int = 0) -> Elsewhere:
    stats = await memories.stats(project)
    own = project_name(project or "") or None
    others = [it for it in stats.projects if it != own]
    return Elsewhere(
        in_project=stats.total_observations, projects=others, project=own, replaced=replaced
    )


def say_nothing(sentence: str, options: Mapping[str, Any], other: Elsewhere) -> None:
    """Say that there is nothing, where, and what the options have left out."""
    if not other.project:
        say(f"{sentence}.")
    elif other.in_project:
        count = counted(other.in_project, "memory", "memories")
        say(one_line(f"{sentence} in the project {other.project}, which has {count}."))
    else:
        say(one_line(f"{sentence}: the project {other.project} has no memories."))
    filters = [f"--{it.replace('_', '-').removesuffix('s')}" for it in FILTERS if options.get(it)]
    if filters and other.in_project:
        say(f"Filtered out: memories that do not match {' and '.join(filters)}.")
    if other.replaced:
        replaced = counted(other.replaced, "memory", "memories")
        say(f"Hidden: {replaced} replaced by another; --superseded shows them.")
    if other.projects and other.project:
        named = ", ".join(other.projects[:MOST_NAMED])
        more = len(other.projects) - MOST_NAMED
        say(one_line(f"Other projects: {named}{f' and {more:,} more' if more > 0 else ''}. "
                     "--project '' searches all projects."))  # fmt: skip


def print_observations(found: Sequence[Observation]) -> None:
    """The rows of a list: what each is, in a line."""
    if found:
        rows = [(f"#{it.id}", ago(it.updated_at), it.type, _marked(it))
                for it in found]  # fmt: skip
        print_table(("ID", "CHANGED", "TYPE", "TITLE"), rows)


def _marked(it: Observation) -> str:
    marks = {"pinned": it.pinned, "replaced": it.superseded_by}
    return "".join(f"({mark}) " for mark, has_it in marks.items() if has_it) + it.title


def print_history(revisions: Sequence[Revision], *, as_json: bool) -> None:
    if as_json:
        print_json(revisions)
        return
    for revision, earlier in pairwise([*revisions, None]):
        assert revision is not None  # that is the last alone
        at = ago(revision.created_at)
        show(f"{revision.revision}  {one_line(revision.action)}  {at}", bold=True)
        for line in _diff(earlier, revision):
            show(line, indent=3)


def reasons(explanation: Explanation) -> list[str]:
    return _sentences(_reasons, explanation)


def understood(explanation: Explanation) -> list[str]:
    return _sentences(_understood, explanation)


def _sentences(
    explain: Callable[[Explanation], Iterator[str]], explanation: Explanation
) -> list[str]:
    """Of an explanation, which another service may have in another shape: no model bounds it."""
    try:
        return list(explain(explanation))
    except (AttributeError, LookupError, TypeError, ValueError):
        return [STRANGE]


def _reasons(explanation: Explanation) -> Iterator[str]:
    method = METHODS.get(explanation.get("method", ""), BY_WORDS)
    tier = TIERS.get(explanation.get("tier", ""), "") if method == BY_WORDS else ""
    yield f"Place {explanation.get('place', '?')}, {method}{tier}."
    if matched := explanation.get("matched"):
        yield f"Matched: {', '.join(dict.fromkeys(map(_term, matched)))}."
    if fields := explanation.get("fields"):
        shares = sorted(fields.items(), key=lambda it: -it[1])
        where = ", ".join(
            f"{FIELDS.get(name, name)} {share:.0%}" for name, share in shares if share >= 0.005
        )
        yield f"Where: {where}. Score {explanation.get('score', 0):.3g}; lower is better."
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


def _understood(explanation: Explanation) -> Iterator[str]:
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


def _term(matched: Mapping[str, Any]) -> str:
    instead = matched.get("instead_of")
    return f"{matched['term']} (for {instead})" if instead else str(matched["term"])


def _block(name: str, entries: Sequence[str]) -> Iterator[str]:
    if entries:
        yield f"<memory:{name}>"
        for entry in entries:
            yield from lines(entry)
        yield f"</memory:{name}>"


def _explain(explanation: Explanation | None) -> None:
    for sentence in reasons(explanation) if explanation else ():
        show(one_line(sentence), INDENT, dim=True)


def _understand(explanation: Explanation | None) -> None:
    for sentence in understood(explanation) if explanation else ():
        show(one_line(sentence), dim=True)


def _say_omitted(count: int) -> None:
    if count:
        say(f"{counted(count, 'more', 'more')} did not fit into one response.")


def _diff(earlier: Revision | None, revision: Revision) -> Iterator[str]:
    if revision.content is None:
        return  # a deletion
    if earlier is None or earlier.content is None:
        yield from _first(revision)
        return
    for name in ("type", "title"):
        before, after = (one_line(getattr(it, name) or "") for it in (earlier, revision))
        if before != after:
            yield f"{name}: {before} -> {after}"
    if earlier.tags != revision.tags:
        yield f"tags: {_tags(earlier)} -> {_tags(revision)}"
    if earlier.content != revision.content:
        yield from _content_diff(list(lines(earlier.content)), list(lines(revision.content)))


def _first(revision: Revision) -> Iterator[str]:
    yield f"title: {one_line(revision.title or '')}"
    if revision.tags:
        yield f"tags: {_tags(revision)}"
    yield from (f"+ {line}" for line in lines(revision.content or ""))


def _content_diff(before: list[str], after: list[str]) -> Iterator[str]:
    if max(len(before), len(after)) > MOST_LINES:
        yield f"content: {len(before)} lines -> {len(after)} lines"
        return
    compared = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
    changed = [line for line in compared if not line.startswith("@@")]
    yield from (f"{line[0]} {line[1:]}" for line in changed)
    if not changed:
        yield "content: only invisible characters changed"


def _tags(revision: Revision) -> str:
    return one_line(", ".join(revision.tags)) or "none"
