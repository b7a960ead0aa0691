"""View *A memory*: what it says, what became of it, and everything that can be done with it."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from agentops_memory_client.contract import models as c
from agentops_memory_client.contract.errors import Conflict, NotFound, Refused

from ..errors import Invalid, Unavailable
from ..memory.erasure import ErasureId, receipt_of
from ..memory.memory import MemoryId
from ..memory.saves import Lookalike, kept_lookalikes, lookalikes
from ..recall.text import clean
from . import page
from .page import PREFIX, Visit

SIMILAR = 5
MOST_OF_UNSEEN = 8_000  # bytes of HTML of what changed in a field
MOST_ID = (1 << 53) - 1  # as in AgentOps REST


def path_of(memory: int) -> str:
    return f"{PREFIX}/memories/{memory}"


async def show(visit: Visit, *, status: int = 200, problem: str = "", **values: Any) -> Response:
    id_ = visit.number("id")
    revisions = await visit.memories.history(id_)
    memory, number = await _existing(visit, id_), visit.query["revision"]
    selected = next((it for it in revisions if str(it.revision) == number), revisions[0])
    # What it changed, by field; nothing for the first one and for a deletion.
    older = (it for it in revisions if it.revision < selected.revision and it.title is not None)
    before = next(older, None) if selected.title is not None else None
    differences = _differences(_fields(before), _fields(selected)) if before else {}
    return await visit.page(
        "memory.html", f"/observations/{id_}", f"/observations/{id_}/history", status=status,
        id=id_, memory=memory, revisions=revisions, problem=problem, selected=selected,
        change=differences, similar=await _similar(visit, id_) if memory else (),
        **values,
    )  # fmt: skip


async def _existing(visit: Visit, id_: int) -> c.Observation | None:
    with suppress(NotFound):
        return await visit.memories.get(id_)
    return None


async def _similar(visit: Visit, id_: int) -> tuple[Lookalike, ...]:
    """The near duplicates found when it was saved; those of now, if the page asks for them.

    To look for them takes a large project five times as long as everything else of the page.
    """
    api, memory = visit.console.agentops, MemoryId(id_)
    if not visit.query["similar"]:
        return await visit.read(kept_lookalikes, memory, SIMILAR)
    with suppress(Unavailable):
        how = api.recall.features, api.recall.timeout
        return await visit.read(lookalikes, memory, SIMILAR, *how)
    return ()


def _fields(it: c.Observation | c.Revision) -> dict[str, str]:
    """The texts of a memory, as its form has them."""
    tags = "\n".join(it.tags)
    return {
        "title": it.title or "", "type": it.type or "", "tags": tags, "content": it.content or ""
    }  # fmt: skip


def _differences(
    before: Mapping[str, str], after: Mapping[str, str], most: int = page.MOST_OF_DIFF
) -> dict[str, Markup]:
    return {
        name: page.compared(text, after[name], most)
        for name, text in before.items()
        if text != after[name]
    }


async def edit(visit: Visit) -> Response:
    memory = await visit.memories.get(visit.number("id"))
    return await _form(visit, memory, _fields(memory), memory.revision_count)


async def _form(
    visit: Visit, memory: c.Observation, fields: Mapping[str, str], based_on: int, **values: Any
) -> Response:
    return await visit.page(
        "memory_edit.html", f"/observations/{memory.id}", memory=memory, fields=fields,
        based_on=based_on, **values,
    )  # fmt: skip


async def save(visit: Visit) -> Response:
    """Save the fields that differ. The page shows both versions if another change came first."""
    id_, form = visit.number("id"), visit.form
    memory = await visit.memories.get(id_)
    fields = {name: form.get(name, "") for name in _fields(memory)}
    based_on = whole_number(form.get("revision", ""), "revision")
    changed = _changed(memory, fields)
    if not changed:
        return visit.see(path_of(id_), done="unchanged")
    try:
        await visit.memories.update(id_, revision=based_on, **changed)
    except Refused as refusal:
        values: dict[str, Any] = {"status": refusal.status, "problem": str(refusal)}
        if isinstance(refusal, Conflict):
            memory = await visit.memories.get(id_)
            if memory.revision_count != based_on:
                based_on = memory.revision_count
                values = {"status": 409, "theirs": _differences(_fields(memory), fields)}
        return await _form(visit, memory, fields, based_on, **values)
    return visit.see(path_of(id_), done="saved")


def _changed(memory: c.Observation, fields: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a change. A form cannot hold a carriage return, so none is no change."""
    changed: dict[str, Any] = {
        name: fields[name]
        for name, text in _fields(memory).items()
        if name != "tags" and fields[name] != page.with_line_feeds(text)
    }
    tags = tuple(tag for tag in map(str.strip, fields["tags"].split("\n")) if tag)
    return changed if tags == memory.tags else {**changed, "tags": tags}


def revisions_of(visit: Visit) -> dict[int, int]:
    """The revision of each memory that the page of the form showed."""
    return dict(at_revision(it, "seen") for it in visit.form.getlist("seen"))


def at_revision(text: str, name: str) -> tuple[int, int]:
    """A memory and a revision of it, as a form has them: `id-revision`."""
    id_, _, revision = text.partition("-")
    return whole_number(id_, name), whole_number(revision, name)


async def unseen(visit: Visit) -> list[tuple[c.Observation, list[dict[str, Markup]]]]:
    """The memories that changed since they were seen, and what differs if that is kept."""
    changed = []
    for id_, number in revisions_of(visit).items():
        memory = await visit.memories.get(id_)
        if memory.revision_count != number:
            before = [it for it in await visit.memories.history(id_) if it.revision == number]
            both = [(_fields(it), _fields(memory)) for it in before]
            changed.append((memory, [_differences(*it, MOST_OF_UNSEEN) for it in both]))
    return changed


async def change(visit: Visit) -> Response:
    id_, name = visit.number("id"), visit.form.get("action", "")
    try:
        if changed := await unseen(visit):
            return await show(visit, status=409, unseen=changed)
        await perform(visit, id_, name)
    except Refused as refusal:
        return await show(visit, status=refusal.status, problem=str(refusal))
    return visit.see(path_of(id_), done=name)


async def perform(visit: Visit, id_: int, action: str) -> None:
    memories, form, revision = visit.memories, visit.form, revisions_of(visit).get(id_)
    match action:
        case "pin" | "unpin":
            await memories.update(id_, pinned=action == "pin", revision=revision)
        case "confirm":
            await memories.confirm(id_)
        case "expire":
            at = _instant(visit, "expires_at") or visit.console.clock()
            await memories.update(id_, expires_at=at, revision=revision)
        case "keep":
            await memories.update(id_, expires_at=None, revision=revision)
        case "review":
            due = _instant(visit, "review_at")
            await memories.update(id_, review_at=due, revision=revision)
        case "supersede":  # this is one of the two
            newer, older = (
                whole_number(form.get(name) or str(id_), name) for name in ("newer", "older")
            )
            await supersede(visit, newer, older)
        case "delete":
            await memories.delete(id_)
        case "restore":
            await memories.restore(id_, whole_number(form.get("revision", ""), "revision"))
        case _:
            raise Invalid("The form must say what to do.")


async def supersede(visit: Visit, newer: int, older: int) -> None:
    memory = await visit.memories.get(newer)
    links, revision = dict.fromkeys([*memory.supersedes, older]), memory.revision_count
    await visit.memories.update(newer, supersedes=[*links], revision=revision)


def _instant(visit: Visit, name: str) -> datetime | None:
    """The instant of a field, which has no time zone and means UTC."""
    text = visit.form.get(name, "").strip()
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{name} must be a date and a time.") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def whole_number(text: str, name: str) -> int:
    number = text.strip().removeprefix("#")
    if not (number.isascii() and number.isdigit()) or not 0 < int(number[:17]) <= MOST_ID:
        raise Invalid(f"{name} must be a whole number.")
    return int(number)


async def plan_erasure(visit: Visit) -> Response:
    id_ = visit.number("id")
    return await visit.page(
        "memory_erase.html", f"/observations/{id_}/history", id=id_,
        revisions=await visit.memories.history(id_), memory=await _existing(visit, id_),
    )  # fmt: skip


async def erase(visit: Visit) -> Response:
    receipt = await visit.memories.delete(visit.number("id"), hard=True)
    if receipt is None:
        raise NotFound("No such observation.")
    return visit.see(f"{PREFIX}/erasures/{receipt}")


async def show_receipt(visit: Visit) -> Response:
    id_ = ErasureId(clean(visit.request.path_params["id"]))
    receipt = await receipt_of(visit.console.agentops.engine, visit.caller, id_)
    return await visit.page("erasure.html", f"/erasures/{receipt.id}", receipt=receipt)
