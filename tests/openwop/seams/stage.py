"""A run of a fixture: what it may do, as whom, and under which names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import cast

from agentops_memory.errors import NotFound
from agentops_memory.memory.access import Caller, TenantId
from agentops_memory.memory.space import MemoryRef
from agentops_memory.openwop import host_runs, routes
from agentops_memory.openwop.api import RefEntryId, Serving
from agentops_memory.openwop.entries import ForgetBody, RefEntry, forget
from agentops_memory.openwop.host_runs import RunSecretBody
from agentops_memory.openwop.routes import TENANT_MEMORY, RefEntryBody
from agentops_memory.openwop.runs import RunId

from .requests import JsonObject
from .seeding import RefDraft, Seed, Seeding

OTHER = TenantId("conformance-other")
NODE = "conformance"
REGISTERED = "conformance-test-secret"  # the id of the value that a fixture registers
LONGEST = 500  # entries of a list


class FixtureFailed(Exception):
    """What a fixture demands of memory is not so; `code` says what, the text is a sentence."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One run of a fixture, whose entries have a tag of their own: others may run meanwhile."""

    serving: Serving
    seeding: Seeding
    new_secret: Callable[[], str]
    caller: Caller
    run: RunId
    workflow: str

    @property
    def ref(self) -> MemoryRef:
        return ref_of(self.workflow)

    @property
    def tag(self) -> str:
        return f"run-id:{self.run}"

    @property
    def elsewhere(self) -> "Stage":
        """The same in the other tenant, as its operator."""
        return replace(self, caller=Caller(tenant=OTHER))

    async def put(self, content: str, *tags: str, ttl: timedelta | None = None) -> RefEntry:
        """An entry of a node of the run, which is of this tenant."""
        body = RefEntryBody(
            memory_ref=self.ref, content=content, tags=[self.tag, *tags],
            ttl_seconds=None if ttl is None else int(ttl.total_seconds()), run_id=self.run,
            node_id=NODE,
        )  # fmt: skip
        return (await routes.put(self.serving, self.caller, body)).value.entry

    async def put_apart(self, ref: MemoryRef, content: str) -> RefEntry:
        """An entry of no run, as another tenant has it, until it is forgotten."""
        tags = [self.tag, f"subject:{self.run}"]
        body = RefEntryBody(memory_ref=ref, content=content, tags=tags)
        return (await routes.put(self.serving, self.caller, body)).value.entry

    async def forget(self) -> None:
        """Erase what was put apart."""
        await forget(self.serving, self.caller, ForgetBody(subject=self.run))

    async def put_expired(self, content: str) -> RefEntryId:
        """An entry that has ended a minute ago."""
        id_ = RefEntryId(f"expired:{self.run}")
        draft = RefDraft(ref=self.ref, content=content, tags=(self.tag,), id=id_)
        ended = self.serving.clock() - timedelta(minutes=1)
        await self.seeding.seed(self.caller, [Seed(draft=draft, ends=ended)])
        return id_

    async def get(self, id_: RefEntryId, ref: MemoryRef | None = None) -> RefEntry | None:
        try:
            place = ref or self.ref
            one = await routes.get(self.serving, self.caller, memory_id=id_, memory_ref=place)
            return one.entry
        except NotFound:
            return None

    async def listed(
        self, ref: MemoryRef | None = None, *, tag: str | None = None, budget: int | None = None
    ) -> Sequence[RefEntry]:
        """Entries of this run, newest first, as anybody without a run sees them."""
        page = await routes.list_entries(
            self.serving, self.caller, memory_ref=ref or self.ref, tag=tag or self.tag,
            limit=LONGEST, token_budget=budget,
        )  # fmt: skip
        return cast("Sequence[RefEntry]", page.items)

    async def summarize(self) -> None:
        """What a host remembers of each run, which none of its nodes wrote."""
        body = RefEntryBody(
            memory_ref=MemoryRef(TENANT_MEMORY),
            content=f"The workflow {self.workflow} has completed.",
            tags=["run-summary", f"workflow:{self.workflow}"],
            run_id=self.run,
        )
        await routes.put(self.serving, self.caller, body)

    async def registered(self) -> str:
        """A new value, which is a secret of the run from now on."""
        value = self.new_secret()
        body = RunSecretBody.model_validate({"secretId": REGISTERED, "value": value})
        done = await host_runs.register(self.serving, self.caller, self.run, body)
        if not done.registered:
            raise FixtureFailed("secret_not_registered", "The value could not be registered.")
        return value


def ref_of(workflow: str) -> MemoryRef:
    """Where a fixture writes."""
    return MemoryRef(f"mem://{workflow}")


def require(is_so: bool, code: str, sentence: str) -> None:
    if not is_so:
        raise FixtureFailed(code, sentence)


def entry(of: RefEntry) -> JsonObject:
    return of.model_dump(mode="json", by_alias=True, exclude_none=True)


def shown(entries: Sequence[RefEntry]) -> list[JsonObject]:
    return [entry(each) for each in entries]
