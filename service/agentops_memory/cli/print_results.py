"""The service's answers: for people, with the reasons if wanted, or the JSON of its REST API."""

import difflib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agentops_memory_client.contract import models as m
from agentops_memory_client.contract.service import MemoryService

from ..memory.space import project_name
from ..recall.instants import parsed, rendered
from .output import ago, count_memories, counted, lines, one_line, print_table, say, show
from .target import run_on_target

if TYPE_CHECKING:
    from ..memory.keys import Key

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


def answered(params: dict[str, Any], work: Callable[[MemoryService], Awaitable[T]]) -> T:
    """What work answers; with --json it is printed, and the command is done.

    What says where the memories are, and how they are printed, is taken out of the options.
    """
    is_json = params.pop("as_json")
    answer = run_on_target(params, work)
    if is_json:
        print_json(answer)
        click.get_current_context().exit()
    return answer


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


def print_found(hits: m.Found, *, as_json: bool) -> None:
    if as_json:
        print_json(hits)
    else:
        for hit in hits:
            key = f"  ({hit.topic_key})" if hit.topic_key else ""
            show(one_line(f"#{hit.id}  [{hit.type}] {hit.title}{key}"), bold=True)
            show(one_line(hit.content), INDENT)
            if hit.superseded_by:
                show(f"Superseded by {ids_of(hit.superseded_by)}.", INDENT, dim=True)
            _show(reasons(hit.explain) if hit.explain else (), INDENT)
        _show(understood(hits.explanation) if hits.explanation else ())
    _say_omitted(hits.omitted)


def print_context(context: m.Context, *, as_json: bool) -> None:
    """The blocks that an agent runtime puts before a prompt, and why each line is in them."""
    if as_json:
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
            _show(reasons(memory.explain) if memory.explain else (), INDENT)
        _show(understood(context.explanation) if context.explanation else ())
    _say_omitted(context.omitted)


async def nothing(
    memories: MemoryService, sentence: str, options: Mapping[str, Any], replaced: int = 0
) -> list[str]:
    """That there is nothing, where, and what is left out: nobody takes it for all there is.

    `replaced` is how many memories would have been found, had others not replaced them.
    """
    stats = await memories.stats(options["project"])
    count, own = stats.total_observations, project_name(options["project"] or "")
    where = f" in the project {own}, which has {count_memories(count)}" if own else ""
    if own and not count:
        where = f": the project {own} has no memories"
    sentences = [f"{sentence}{where}."]
    filters = [f"--{it.replace('_', '-').removesuffix('s')}" for it in FILTERS if options.get(it)]
    if filters and count:
        sentences.append(f"Filtered out: memories that do not match {' and '.join(filters)}.")
    if replaced:
        by_others = f"{count_memories(replaced)} replaced by another"
        sentences.append(f"Hidden: {by_others}; --superseded shows them.")
    others = [it for it in stats.projects if it != own]
    if others and own:
        more = f" and {len(others) - MOST_NAMED:,} more" if len(others) > MOST_NAMED else ""
        names = f"{', '.join(others[:MOST_NAMED])}{more}"
        sentences.append(f"Other projects: {names}. --project '' searches all projects.")
    return sentences


def say_each(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        say(one_line(sentence))


def _tolerant(
    explain: Callable[[m.Explanation], Iterator[str]],
) -> Callable[[m.Explanation], list[str]]:
    """Of an explanation, which another service may have in another shape: no model bounds it."""

    def sentences(explanation: m.Explanation) -> list[str]:
        try:
            return list(explain(explanation))
        except (AttributeError, LookupError, TypeError, ValueError):
            return [STRANGE]

    return sentences


@_tolerant
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


@_tolerant
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


def _show(sentences: Iterable[str], indent: int = 0) -> None:
    for sentence in sentences:
        show(one_line(sentence), indent, dim=True)


def _say_omitted(count: int) -> None:
    if count:
        say(f"{counted(count, 'more', 'more')} did not fit into one response.")


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
