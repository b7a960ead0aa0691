"""The service's answers: for people, with the reasons if wanted, or the JSON of its REST API."""

import difflib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agentops_memory_client.contract import models as m
from agentops_memory_client.contract.service import MemoryService

from ..memory.space import project_name
from ..recall.instants import parsed, rendered
from .output import ago, count_memories, counted, lines, one_line, print_table, say, show
from .target import run_on_target, taken_from

if TYPE_CHECKING:
    from ..memory.keys import Key

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

T = TypeVar("T")
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
    """The named parts of a noun, as JSON has them; `shown=own.part` shows one by another name."""
    split = (name.partition("=") for name in names.split())
    values = {field: attrgetter(own or field)(noun) for field, _, own in split}
    return {name: rendered(it) if isinstance(it, datetime) else it for name, it in values.items()}


def named(keys: "Iterable[Key]") -> list[dict[str, str]]:
    return [{"id": key.id, "name": key.name} for key in keys]


def tell(document: object, sentence: str, *, as_json: bool) -> None:
    click.echo(json.dumps(document) if as_json else sentence)


def cells(record: Record) -> dict[str, object]:
    """The parts of a record as a table shows them: what is absent is empty, an instant is ago."""
    ats = {name: parsed(str(part)) for name, part in record.items() if name.endswith(INSTANTS)}
    return {
        name: ago(at) if (at := ats.get(name)) else "" if part is None else part
        for name, part in record.items()
    }


def answered(
    params: dict[str, Any], work: Callable[[MemoryService], Awaitable[T]], **how: bool
) -> T:
    """What work answers; with --json it is printed, and the command is done.

    What says where the memories are, and how they are printed, is taken out of the options.
    """
    is_json, where = params.pop("as_json"), taken_from(params)
    answer = run_on_target(where, work, **how)
    if is_json:
        print_json(answer)
        click.get_current_context().exit()
    return answer


def print_json(noun: object) -> None:
    click.echo(json.dumps(json_of(noun)))


def json_of(noun: object) -> Any:
    """A noun, or several, as the API answers them; parts without a value are absent."""
    if isinstance(noun, m.Found):
        return _found(noun)
    if isinstance(noun, m.Context):
        return _context(noun)
    if isinstance(noun, datetime):
        return noun.isoformat().replace("+00:00", "Z")
    if isinstance(noun, list | tuple):
        return [json_of(each) for each in noun]
    if is_dataclass(noun):
        parts = {field.name: getattr(noun, field.name) for field in fields(noun)}
        return {name: json_of(part) for name, part in parts.items() if _is_printed(name, part)}
    return noun


def _found(found: m.Found) -> Any:
    hits = json_of(found.hits)
    return _explained({"results": hits}, found.explanation) if found.explanation else hits


def _context(context: m.Context) -> Any:
    answer = {
        "recent_sessions": [{"summary": summary} for summary in context.summaries],
        "recent_observations": json_of(context.observations),
    }
    return _explained(answer, context.explanation)


def _explained(answer: dict[str, Any], explanation: Mapping[str, Any] | None) -> dict[str, Any]:
    return answer | {"explain": explanation} if explanation else answer


def _is_printed(name: str, part: object) -> bool:
    is_unset = part is None or part is False or (part == () and name in UNSET_IS_EMPTY)
    return name not in HEADERS and not is_unset


def print_saved(saved: m.Saved, where: str, *, as_json: bool) -> None:
    """What became of a save; on standard error, what the service did not store or warns of."""
    if as_json:
        print_json(saved)
    else:
        show(one_line(DONE[saved.action].format(saved, where)))
    if saved.redacted:
        say(f"Secrets removed: {counted(saved.redacted, 'secret')}.")
    if saved.warning:
        say(one_line(f"Warning: {saved.warning}."))


def print_found(found: m.Found, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        for hit in found:
            key = f"  ({hit.topic_key})" if hit.topic_key else ""
            show(one_line(f"#{hit.id}  [{hit.type}] {hit.title}{key}"), bold=True)
            show(one_line(hit.content), INDENT)
            if hit.superseded_by:
                show(f"Superseded by {ids_of(hit.superseded_by)}.", INDENT, dim=True)
            _show_reasons(hit.explain)
        _show_understood(found.explanation)
    _say_omitted(found.omitted)


def print_context(context: m.Context, *, as_json: bool) -> None:
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
            _show_reasons(memory.explain)
        _show_understood(context.explanation)
    _say_omitted(context.omitted)


async def nothing(
    memories: MemoryService, sentence: str, options: Mapping[str, Any], replaced: int = 0
) -> list[str]:
    """That there is nothing, where, and what is left out: nobody takes it for all there is.

    `replaced` is how many memories would have been found, had others not replaced them.
    """
    stats = await memories.stats(options["project"])
    in_project, own = stats.total_observations, project_name(options["project"] or "")
    place = f" in the project {own}, which has {count_memories(in_project)}" if own else ""
    if own and not in_project:
        place = f": the project {own} has no memories"
    said = [f"{sentence}{place}."]
    filters = [f"--{it.replace('_', '-').removesuffix('s')}" for it in FILTERS if options.get(it)]
    if filters and in_project:
        said.append(f"Filtered out: memories that do not match {' and '.join(filters)}.")
    if replaced:
        by_others = f"{count_memories(replaced)} replaced by another"
        said.append(f"Hidden: {by_others}; --superseded shows them.")
    others = [it for it in stats.projects if it != own]
    if others and own:
        more = f" and {len(others) - MOST_NAMED:,} more" if len(others) > MOST_NAMED else ""
        named = f"{', '.join(others[:MOST_NAMED])}{more}"
        said.append(f"Other projects: {named}. --project '' searches all projects.")
    return said


def say_each(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        say(one_line(sentence))


def print_history(revisions: Sequence[m.Revision]) -> None:
    for revision, earlier in pairwise([*revisions, None]):
        assert revision is not None  # that is the last alone
        at = ago(revision.created_at)
        show(f"{revision.revision}  {one_line(revision.action)}  {at}", bold=True)
        for line in _diff(earlier, revision):
            show(line, indent=3)


def reasons(explanation: m.Explanation) -> list[str]:
    return _sentences(_reasons, explanation)


def understood(explanation: m.Explanation) -> list[str]:
    return _sentences(_understood, explanation)


def _sentences(
    explain: Callable[[m.Explanation], Iterator[str]], explanation: m.Explanation
) -> list[str]:
    """Of an explanation, which another service may have in another shape: no model bounds it."""
    try:
        return list(explain(explanation))
    except (AttributeError, LookupError, TypeError, ValueError):
        return [STRANGE]


def _reasons(explanation: m.Explanation) -> Iterator[str]:
    method = METHODS.get(explanation.get("method", ""), BY_WORDS)
    tier = TIERS.get(explanation.get("tier", ""), "") if method == BY_WORDS else ""
    yield f"Place {explanation.get('place', '?')}, {method}{tier}."
    if matched := explanation.get("matched"):
        yield f"Matched: {', '.join(dict.fromkeys(map(_term, matched)))}."
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


def _understood(explanation: m.Explanation) -> Iterator[str]:
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


def _show_reasons(explanation: m.Explanation | None) -> None:
    for sentence in reasons(explanation) if explanation else ():
        show(one_line(sentence), INDENT, dim=True)


def _show_understood(explanation: m.Explanation | None) -> None:
    for sentence in understood(explanation) if explanation else ():
        show(one_line(sentence), dim=True)


def _say_omitted(count: int) -> None:
    if count:
        say(f"{counted(count, 'more', 'more')} did not fit into one response.")


def _diff(earlier: m.Revision | None, revision: m.Revision) -> Iterator[str]:
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


def _first(revision: m.Revision) -> Iterator[str]:
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


def _tags(revision: m.Revision) -> str:
    return one_line(", ".join(revision.tags)) or "none"
