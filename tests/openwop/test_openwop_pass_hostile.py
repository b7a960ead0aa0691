"""Passes and forgetting under attack: what undo, secrets and other passes may leave behind."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ..support.erasing import remains
from ..support.openwop_hosts import H, Host, ok, refused
from ..support.openwop_passes import CONSOLIDATED, about, archived, events, ids, passed
from ..support.openwop_sweeps import deleted_long_ago, sweeping
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service, serving

VALUE = "xylographer-77"
MAX_CONTENT = 65_536


@requirement("OW-71", "OW-81")
def test_an_undo_never_takes_away_the_one_text_of_a_renewed_entry(host: Host) -> None:
    host.put("herons wade"), host.put(f"Herons wade. The code is {VALUE}. Storks nest.")
    host.in_run("r1").register("s", VALUE)
    run = ok(host.consolidate())["runId"]
    assert host.contents() == ["Herons wade. The code is [REDACTED:s]. Storks nest."]

    host.undo(run)

    assert any("Storks nest" in it for it in host.contents())


@pytest.mark.heavy
@requirement("OW-77", "OW-81")
@pytest.mark.parametrize("by_host", [False, True])
def test_what_an_erased_entry_stood_for_does_not_come_back(host: Host, by_host: bool) -> None:
    host.put("It waits 10 s.", tags=["key:wait"])
    second = host.put(f"It waits 20 s for {VALUE}.", tags=["key:wait"])
    ok(host.consolidate())
    assert len(host.entries()) == 1
    third = host.put("It waits 30 s.", tags=["key:wait"])
    host.in_run("r1").register("s", VALUE)

    if by_host:
        merge = {"ids": ids([second, third]), "content": "It waits 30 s, really."}
        payload = passed(host.consolidate(merge), CONSOLIDATED)
    else:
        payload = passed(host.consolidate(), CONSOLIDATED)

    assert [it for it in host.contents() if "10 s" in it] == []
    assert payload["outputCount"] == len(host.entries())
    again = passed(host.consolidate(), CONSOLIDATED)
    assert again["inputCount"] == again["outputCount"]


@pytest.mark.heavy
@requirement("OW-37", "OW-42")
@pytest.mark.parametrize("work", ["compact", "distill", "merge"])
def test_a_secret_in_a_subject_is_not_written_again(host: Host, work: str) -> None:
    made = ids([host.put(it, tags=[f"subject:{VALUE}"]) for it in ("herons", "storks")])
    host.in_run("r1").register("s", VALUE)
    if work == "merge":
        ok(host.consolidate({"ids": made, "content": "birds"}))
    else:
        ok(getattr(host, work)())

    new = [it for it in host.entries() if it["id"] not in made]
    assert len(new) == 1
    assert VALUE not in str(new)


@pytest.mark.heavy
@requirement("OW-69", "OW-77")
def test_a_refused_consolidation_has_merged_nothing(host: Host) -> None:
    for at in range(255):
        host.put(f"{at} " + "-" * (MAX_CONTENT - 4))
    made = ids([host.put("a"), host.put("b")])
    host.put("storks nest " * 20)
    before = host.entries(limit=5), len(events(host))

    answer = host.consolidate({"ids": made, "content": "c" * MAX_CONTENT})

    assert refused(answer) == (422, "memory_too_large")
    assert (host.entries(limit=5), len(events(host))) == before


@pytest.mark.slow
@requirement("OW-71")
def test_an_undo_counts_what_is_back(host: Host) -> None:
    made = ids([host.put("herons wade"), host.put("storks nest")])
    host.put("Herons wade. Storks nest. Egrets fly.")
    run = ok(host.consolidate({"ids": made, "content": "Herons wade. Storks nest."}))["runId"]
    assert len(host.entries()) == 1

    undone = ok(host.undo(run))

    assert len(host.entries()) == 3
    assert (undone["restored"], undone["removed"]) == (2, 1)


@requirement("OW-85")
def test_a_merge_with_an_awaited_tag_does_not_silence_the_commitment(host: Host) -> None:
    host.put("ship it", tags=["when:done"])
    made = ids([host.put("a one"), host.put("b two")])
    ok(host.consolidate({"ids": made, "content": "all done", "tags": ["done"]}))
    host.put("done again", tags=["done"])

    assert [it["type"] for it in events(host)].count("commitment.fired") == 1


@pytest.mark.slow
@requirement("OW-51", "OW-81")
def test_an_open_run_does_not_lose_what_was_renewed(host: Host) -> None:
    host.put("herons wade"), host.put(f"Herons wade. The code is {VALUE}. Storks nest.")
    run = host.in_run("r1")
    run.register("s", VALUE)
    assert len(run.entries()) == 2
    ok(host.consolidate())

    assert any("Storks nest" in it for it in run.contents())


@pytest.mark.heavy
@requirement("OW-93", "OW-66")
@pytest.mark.parametrize("work", ["compact", "distill"])
def test_an_archive_that_is_there_is_made_of_what_now_has_the_ids(host: Host, work: str) -> None:
    host.put("tea at four", id="a", tags=["subject:bob"]), host.put("herons wade", id="b")
    fields = {"keepSources": True} if work == "compact" else {}
    archived(host, getattr(host, work)(**fields))
    ok(host.delete("a"))
    ok(host.delete("b"))
    host.put("tea at four", id="a", tags=["subject:ada"]), host.put("herons wade", id="b")
    second = archived(host, getattr(host, work)(**fields))

    ok(host.forget("ada"))

    assert host.get(second["id"]).status_code == 404


@pytest.mark.slow
@requirement("OW-45")
def test_an_archive_that_is_there_ends_with_what_it_says(service: Service, host: Host) -> None:
    host.put("tea at four", id="a"), host.put("herons wade", id="b")
    ok(host.distill())
    ok(host.delete("a"))
    host.put("tea at four", id="a", ttlSeconds=60)
    ok(host.delete("b"))
    host.put("herons wade", id="b")
    second = archived(host, host.distill())
    service.clock.advance(seconds=61)

    assert host.get(second["id"]).status_code == 404


@pytest.mark.slow
@requirement("OW-80")
def test_seen_counts_an_entry_once_whatever_is_undone(host: Host) -> None:
    host.put("herons wade"), host.put("Herons wade. Storks nest.")
    first = ok(host.consolidate())["runId"]
    top = host.put("Herons wade. Storks nest. Egrets fly.")
    ok(host.consolidate())
    assert about(host, top["id"])["seen"] == 3
    ok(host.undo(first))
    ok(host.consolidate())

    assert about(host, top["id"])["seen"] == 3


@requirement("OW-71")
def test_an_undo_of_what_a_put_has_replaced_since(host: Host) -> None:
    made = [host.put("herons wade"), host.put("storks nest")]
    run = ok(host.compact())["runId"]
    host.put("herons fly", supersedes=[made[0]["id"]])

    answer = host.undo(run)

    assert answer.status_code == 409 or answer.json()["restored"] == 1


@requirement("OW-95", "OW-96")
def test_a_subject_without_entries_leaves_the_files_too(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service:
        host = Host(service.http, "user:zeppelina")
        host.in_run("r1", memoryRefs=[host.ref])
        host.in_run("r2", memoryRefs=["mem://x"]).fork()
        assert remains(tmp_path, "zeppelina")

        ok(host.forget(host.ref))

        until(lambda: not remains(tmp_path, "zeppelina"))


@pytest.mark.heavy
@requirement("OW-95", "OW-96")
def test_what_was_deleted_long_ago_leaves_no_name(tmp_path: Path) -> None:
    with sweeping(tmp_path) as service:
        host = Host(service.http, "user:zeppelina")
        run = host.in_run("r1")
        made = run.put("tea")
        ok(host.delete(made["id"]))
        ok(run.fork(), 201)
        run.end()
        deleted_long_ago(service)
        assert remains(tmp_path, "zeppelina")

        ok(host.forget(host.ref))

        until(lambda: not remains(tmp_path, "zeppelina"))


@pytest.mark.heavy
@requirement("OW-96", "OW-82")
def test_a_pass_that_goes_on_does_not_tell_the_name_again(service: Service) -> None:
    host = Host(service.http, "user:zeppelina")
    for _ in range(12):
        for at in range(60):
            host.put(f"herons wade {at % 7}")
        with ThreadPoolExecutor(4) as pool:
            works = [
                pool.submit(host.consolidate), pool.submit(host.compact),
                pool.submit(host.distill), pool.submit(host.forget, host.ref),
            ]  # fmt: skip
        answers = [it.result() for it in works]
        ok(host.forget(host.ref))
        assert answers
        assert "zeppelina" not in str(service.http.get(H + "/events?limit=1000").json())


@requirement("OW-81")
def test_the_bytes_of_a_stale_secret_go_at_once(service: Service, host: Host) -> None:
    host.put(f"the code is {VALUE}", tags=["key:code"])
    host.put("the code was changed", tags=["key:code"])
    host.in_run("r1").register("s", VALUE)

    ok(host.consolidate())

    until(lambda: not remains(service.path.parent, VALUE))


@pytest.mark.heavy
@requirement("OW-62", "OW-93")
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("is_put_again", [True, False])
def test_a_fork_never_shows_a_forgotten_ref_as_empty(
    host: Host, declared: bool, is_put_again: bool
) -> None:
    own = Host(host.http, "user:ada")
    own.put("tea")
    fields = {"memoryRefs": [own.ref]} if declared else {}
    run = own.in_run("r1", **fields)
    fork = Host(host.http, own.ref, ok(run.fork(), 201)["runId"])
    assert fork.contents() == ["tea"]

    ok(host.forget(own.ref))
    if is_put_again:
        own.put("coffee")

    answer = fork.ask("GET", "/memory", params={"memoryRef": own.ref, "runId": fork.run})
    assert answer.status_code == 422, answer.text


@pytest.mark.representative(1)
@pytest.mark.slow
@requirement("OW-93", "OW-82")
@pytest.mark.parametrize("work", ["compact", "distill"])
def test_what_a_pass_makes_of_a_subject_meanwhile_goes_with_it(host: Host, work: str) -> None:
    for _ in range(3):
        for at in range(60):
            host.put(f"ada drinks tea {at}", tags=["subject:ada"])
        with ThreadPoolExecutor(2) as pool:
            passing, forgetting = pool.submit(getattr(host, work)), pool.submit(host.forget, "ada")
        ok(forgetting.result())
        assert passing.result().status_code in (200, 409)
        assert host.contents() == []


@pytest.mark.slow
@requirement("OW-93", "OW-81")
def test_what_a_pass_rids_of_a_secret_meanwhile_is_forgotten(host: Host) -> None:
    run = host.in_run("r1")
    for number in range(3):
        value = f"{VALUE}-{number}"
        for at in range(60):
            host.put(f"ada {at % 20} opens {value}.", tags=["subject:ada"])
        run.register(f"s{number}", value)
        with ThreadPoolExecutor(2) as pool:
            passing, forgetting = pool.submit(host.consolidate), pool.submit(host.forget, "ada")
        ok(forgetting.result())
        assert passing.result().status_code in (200, 409)
        assert host.contents() == []
