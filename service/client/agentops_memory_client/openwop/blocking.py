"""Memory of workflow runs, blocking: each method runs that of the awaited core to its end."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from ..contract.call import T, shown_as
from ..transport.exchange import finished
from .commitments import AsyncCommitments
from .entries import AsyncEntries
from .memory import AsyncOpenWopMemory
from .proposals import AsyncProposals
from .runs import AsyncRun

Core_co = TypeVar("Core_co", covariant=True)
P = ParamSpec("P")


class _Blocking(Generic[Core_co]):
    """What blocks, over its core."""

    def __init__(self, core: Core_co) -> None:
        self._core = core


def _waiting(
    work: Callable[Concatenate[Core_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocking[Core_co], P], T]:
    """The method that does the work of the core."""

    def do(self: _Blocking[Core_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finished(work(self._core, *args, **kwargs))

    return shown_as(work, do, beside=1)


class Entries(_Blocking[AsyncEntries]):
    """Entries of memory refs, as a run's snapshot has them; a `MemoryAdapter`."""

    list = _waiting(AsyncEntries.list)
    get = _waiting(AsyncEntries.get)


class Run(_Blocking[AsyncRun]):
    """A run of a workflow; `memory` is its snapshot: memory as it was when the run started.

    `with` opens it and ends it `completed`, or `failed` on an exception. `AsyncRun` says more.
    """

    def __init__(self, core: AsyncRun) -> None:
        super().__init__(core)
        self.memory = Entries(core.memory)

    @property
    def id(self) -> str:
        return self._core.id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: object, exception: BaseException | None, traceback: object) -> None:
        finished(self._core.__aexit__(kind, exception, traceback))

    open = _waiting(AsyncRun.open)
    end = _waiting(AsyncRun.end)
    secret = _waiting(AsyncRun.secret)
    put = _waiting(AsyncRun.put)
    delete = _waiting(AsyncRun.delete)


class Commitments(_Blocking[AsyncCommitments]):
    """Commitments of a tenant. That one has fired is told in `OpenWopMemory.events`."""

    create = _waiting(AsyncCommitments.create)
    list = _waiting(AsyncCommitments.list)
    get = _waiting(AsyncCommitments.get)
    cancel = _waiting(AsyncCommitments.cancel)


class Proposals(_Blocking[AsyncProposals]):
    """Proposals of a tenant, and the artifacts of those that were applied."""

    create = _waiting(AsyncProposals.create)
    list = _waiting(AsyncProposals.list)
    get = _waiting(AsyncProposals.get)
    revise = _waiting(AsyncProposals.revise)
    apply = _waiting(AsyncProposals.apply)
    reject = _waiting(AsyncProposals.reject)
    archive = _waiting(AsyncProposals.archive)
    artifacts = _waiting(AsyncProposals.artifacts)
    artifact = _waiting(AsyncProposals.artifact)


class OpenWopMemory(_Blocking[AsyncOpenWopMemory]):
    """Memory refs of a tenant, as a host uses them; what is read is as it is now.

    A `MemoryAdapter`. Every method refuses with a MemoryServiceError, whose `code` is
    the protocol's and whose text holds nothing of an entry.
    """

    def __init__(self, core: AsyncOpenWopMemory) -> None:
        super().__init__(core)
        self.commitments = Commitments(core.commitments)
        self.proposals = Proposals(core.proposals)

    def run(
        self,
        run_id: str,
        *,
        agent_id: str | None = None,
        workflow_id: str | None = None,
        memory_refs: Sequence[str] = (),
    ) -> Run:
        """A run of a workflow, to be used in `with`; nothing is sent yet.

        Its id has 1 to 128 characters; it declares at most 32 refs.
        """
        return Run(
            self._core.run(
                run_id, agent_id=agent_id, workflow_id=workflow_id, memory_refs=memory_refs
            )
        )

    list = _waiting(AsyncOpenWopMemory.list)
    get = _waiting(AsyncOpenWopMemory.get)
    put = _waiting(AsyncOpenWopMemory.put)
    delete = _waiting(AsyncOpenWopMemory.delete)
    search = _waiting(AsyncOpenWopMemory.search)
    provenance = _waiting(AsyncOpenWopMemory.provenance)
    refs = _waiting(AsyncOpenWopMemory.refs)
    events = _waiting(AsyncOpenWopMemory.events)
    compact = _waiting(AsyncOpenWopMemory.compact)
    distill = _waiting(AsyncOpenWopMemory.distill)
    consolidate = _waiting(AsyncOpenWopMemory.consolidate)
    undo = _waiting(AsyncOpenWopMemory.undo)
    index = _waiting(AsyncOpenWopMemory.index)
    forget = _waiting(AsyncOpenWopMemory.forget)
    erasure = _waiting(AsyncOpenWopMemory.erasure)
