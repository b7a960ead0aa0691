"""What is measured and traced of runs."""

from pathlib import Path

from ..support.openwop_hosts import Host, ok
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import serving
from ..telemetry.test_tracing import traced


@requirement("OW-101")
def test_open_runs_are_measured(path: Path) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="5ms") as service:
        host = Host(service.http)
        runs = [host.in_run(f"r{number}") for number in range(3)]
        runs[0].end()
        until(lambda: "memory_runs_open 2" in service.http.get("/metrics").text)


@requirement("OW-101", "OW-40")
def test_each_operation_on_runs_is_a_span_that_tells_of_the_run_and_of_no_text(
    tmp_path: Path,
) -> None:
    with traced(tmp_path) as (service, received):
        run = Host(service.http).in_run("r1")
        run.register("stripe", "saffron-saffron")
        made = run.put("hippopotamus saffron-saffron", tags=["ref_tags"], nodeId="n1")
        run.entries()
        run.get(made["id"])
        run.delete(made["id"])
        ok(run.fork(), 201)
        assert run.told()
        assert ok(run.ask("GET", "/events"))["events"]
        ok(run.ask("GET", "/runs/r1"))
        run.end()
        collector = received()

    of_run = "open_run get_run register_secret end_run fork_run run_events put list get delete"
    for name in of_run.split():
        span = collector.one(f"memory.openwop_{name}")
        assert span.attributes["openwop.run_id"] == "r1", name
    put = collector.one("memory.openwop_put").attributes
    assert (put["memory.ref"], put["openwop.node_id"]) == ("mem://notes", "n1")
    assert put["memory.entry.id"] == made["id"]
    assert collector.one("memory.openwop_events").attributes["memory.result_count"] > 0  # type: ignore[operator]
    for word in ("hippopotamus", "saffron", "ref_tags"):
        assert word not in repr(collector.spans), word
