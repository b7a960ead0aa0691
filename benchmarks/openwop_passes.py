"""Puts while a pass goes over a large ref."""

import time
from concurrent.futures import ThreadPoolExecutor

from .figures import Figure, at_most
from .measures import Times
from .openwop_host import H, Host
from .openwop_refs import TWICE

PUTS = 500  # without a pass, after each


def beside_a_pass(host: Host, port: int, entries: int, passes: int) -> Figure:
    """Puts while a ref is consolidated of which every second entry says what another says."""
    during, without = Times(), Times()
    for _ in range(passes):
        with ThreadPoolExecutor(1) as beside:
            run = beside.submit(_consolidated, port)
            while not run.done():
                during.taken.append(_put(host))
        host.ask(f"{H}/passes/{run.result()}/undo", {})
        without.taken += [_put(host) for _ in range(PUTS)]
    return Figure(
        what=f"put while {entries:,} entries are consolidated against without: p99",
        value=during.p99 / without.p99,
        aim=at_most(3),
        beside=f"{during}, {len(during.taken)} puts in {passes} passes, against {without}",
    )


def _consolidated(port: int) -> str:
    """The run of a pass that was made on a connection of its own."""
    run: str = Host(port).ask(f"{H}/consolidate", {"memoryRef": TWICE})["runId"]
    return run


def _put(host: Host) -> float:
    began = time.perf_counter()
    host.put()
    return time.perf_counter() - began
