"""Projects as a unit: renamed, merged and erased, with an index that stays exact."""

from pathlib import Path

import pytest

from agentops_memory.engine.engine import Scrubbed
from agentops_memory.errors import Conflict, Denied, Invalid, NotFound
from agentops_memory.jobs.jobs import scrub, scrub_all
from agentops_memory.memory.access import NOT_YOUR_PROJECT, OPERATOR, Caller, Patterns, Role
from agentops_memory.memory.erasure import Erasure, ErasureId
from agentops_memory.memory.projects import Projects, erase_some
from agentops_memory.memory.space import MOST_PROJECTS, Project

from ..support.callers import audit, calling, made_key
from ..support.engines import rows
from ..support.erasing import gone, remains
from ..support.files import assert_index_is_whole
from ..support.projects import Said, changed, erased, of_project, texts
from ..support.service import Service, serving
from ..support.terminal import Terminal

A, B, C = Project("a"), Project("b"), Project("c")
BOTH = [Said("a", "apple"), Said("b", "pear")]


@pytest.mark.slow
@pytest.mark.parametrize("later", ["a", "b"])
def test_of_two_memories_at_one_key_the_later_text_stays_and_the_other_is_its_revision(
    tmp_path: Path, later: str
) -> None:
    earlier = "b" if later == "a" else "a"
    said = [
        Said(earlier, "the earlier", key="k"),
        Said(later, "the later before", key="k"),
        Said(later, "the later", key="k"),
    ]
    path = tmp_path / "memory.db"

    async def merge(projects: Projects) -> None:
        plan = await projects.plan_merge(OPERATOR, A, B)
        assert of_project(path, "b") != []  # a plan changes nothing
        assert await projects.merge(OPERATOR, A, B) == plan
        assert plan.same_keys == 1
        renaming = await projects.plan_rename(OPERATOR, B, C)
        assert await projects.rename(OPERATOR, B, C) == renaming
        assert [it.project for it in await projects.list(OPERATOR)] == ["c"]

    changed(path, said, merge)

    assert_index_is_whole(path)
    (held,) = rows(path, "SELECT id, content FROM memories WHERE key = 'k' AND deleted_at IS NULL")
    assert held[1] == "the later"
    history = rows(path, f"SELECT content FROM revisions WHERE memory_id = {held[0]}")
    assert ("the earlier",) in history
    # The other is deleted, with a history of its own.
    assert texts(path) >= {"the earlier", "the later before", "the later"}


def test_a_session_with_memories_of_another_project_stays_for_them_without_its_summary(
    service: Service,
) -> None:
    service.save("apple", project="a", session_id="both")
    service.save("pear", project="b", session_id="both")
    service.save("quince", project="a", session_id="alone")
    told = {"messages": [{"role": "user", "content": "a plan of a alone"}]}
    service.http.post("/sessions/both/end", json=told)
    plan = erased(service, "a", dry_run="true").json()

    receipt = erased(service, "a").json()

    assert (plan["sessions"], plan["sessions_kept"]) == (1, 1)
    assert receipt["sessions"] == 1
    (session,) = service.http.get("/sessions/recent").json()
    assert (session["id"], session["project"], session.get("summary", "")) == ("both", "b", "")
    assert [row["title"] for row in service.http.get("/observations/recent").json()] == ["pear"]
    assert "a plan of a alone" not in service.http.get("/export").text
    assert_index_is_whole(service.path)


def test_an_erased_project_leaves_no_byte_and_a_receipt(service: Service) -> None:
    for scope in ("project", "global"):
        service.save(f"xylographers of {scope}", project="dir/a b", scope=scope, session_id="vex")
    service.save("pear", project="b")

    answer = erased(service, "DIR/A%20B")

    receipt = answer.json()
    assert answer.headers["X-Erasure-Id"] == receipt["id"]
    told = gone(service.http, receipt["id"])
    assert (told["kind"], told["project"], told["observations"]) == ("project", "dir/a b", 2)
    assert remains(service.path.parent, "xylograph") == set()
    assert service.http.get("/stats").json()["projects"] == ["b"]
    (line,) = audit(service.path)
    assert (line["action"], line["project"]) == ("project.erased", "dir/a b")
    assert (line["by"], line["observations"]) == ({"key": None}, 2)


def test_a_repeated_erasure_has_the_same_receipt_and_one_of_nothing_is_not_found(
    service: Service,
) -> None:
    service.save("apple", project="a")
    first = erased(service, "a").json()

    again = erased(service, "a").json()

    assert again["id"] == first["id"]
    assert erased(service, "a", dry_run="true").json()["observations"] == 0
    assert erased(service, "never-was").status_code == 404
    service.save("pear", project="a")
    unclear = ("hard=true&dry_run=on", "hard=true&dry_run=%20true", "hard=", "", "dry_run=true",
               "hard=true&dry_run=&dry_run=true", "hard=yes")  # fmt: skip
    for path in ("/projects/?hard=true", *(f"/projects/a?{it}" for it in unclear)):
        assert service.http.delete(path).status_code == 400
    assert service.http.get("/stats").json()["total_observations"] == 1
    assert erased(service, "a").json()["id"] != first["id"]


def test_an_interrupted_erasure_goes_on_where_it_was(path: Path) -> None:
    said = [Said("a", f"apple {n}") for n in range(5)]
    told: list[Erasure] = []

    def stop(erasure: Erasure) -> None:
        told.append(erasure)
        raise InterruptedError

    async def erase(projects: Projects) -> Erasure:
        with pytest.raises(InterruptedError):
            await projects.erase(OPERATOR, A, stop)
        assert_index_is_whole(path)
        assert await scrub(projects.engine, OPERATOR) == Scrubbed()
        with pytest.raises(Conflict):
            await projects.rename(OPERATOR, A, C)
        assert (await projects.plan_erasure(OPERATOR, A)).memories == 3
        return await projects.erase(OPERATOR, A)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentops_memory.memory.projects.BATCH", 2)
        erasure = changed(path, said, erase)

    assert (told[0].observations, told[0].is_in_progress) == (2, True)
    assert (erasure.id, erasure.observations, erasure.is_in_progress) == (told[0].id, 5, False)
    assert of_project(path, "a") == []


def test_a_change_that_makes_no_sense_is_refused_and_so_is_one_of_another_project(
    path: Path,
) -> None:
    partly = Caller(projects=Patterns(("a", "c")))
    writer = Caller(role=Role.WRITER)

    async def refuse(projects: Projects) -> None:
        for change, refusal, project, other in [
            (projects.rename, Invalid, A, A), (projects.rename, Invalid, A, Project("")),
            (projects.rename, Invalid, A, Project("x" * 201)), (projects.rename, NotFound, C, A),
            (projects.rename, Conflict, A, B), (projects.merge, Invalid, A, A),
            (projects.merge, NotFound, A, C), (projects.merge, NotFound, C, A),
        ]:  # fmt: skip
            with pytest.raises(refusal):
                await change(OPERATOR, project, other)
        for caller in (partly, writer):
            for change in (projects.merge, projects.plan_merge, projects.rename):
                with pytest.raises(Denied):
                    await change(caller, A, B)
            for erasing in (projects.erase, projects.plan_erasure):
                with pytest.raises(Denied):
                    await erasing(caller, B)
        with pytest.raises(NotFound):  # as of a tenant that was erased meanwhile
            await projects.engine.write(OPERATOR, erase_some, ErasureId("of another file"))
        assert [it.project for it in await projects.list(partly)] == ["a"]
        await projects.rename(partly, A, C)

    changed(path, BOTH, refuse)


def test_global_memories_go_with_a_key_for_everything_alone(path: Path) -> None:
    with serving(path, MEMORY_AUTH="none") as service:
        service.save("apple", project="a", scope="global")
        service.save("pear", project="b")
        everything_, partly = made_key(path), made_key(path, projects=("a", "c*"))
        with calling(service, partly) as client:
            for query in ("hard=true", "hard=true&dry_run=true"):
                assert client.delete(f"/projects/a?{query}").status_code == 403
                foreign, never = (client.delete(f"/projects/{it}?{query}") for it in ("b", "nx"))
                assert (foreign.status_code, foreign.content) == (403, never.content)
                assert foreign.json() == {"error": NOT_YOUR_PROJECT}
        with calling(service, everything_) as client:
            assert client.delete("/projects/a?hard=true").status_code == 200
            assert client.get("/stats").json()["total_observations"] == 1
    assert [line["action"] for line in audit(path)][2:] == ["project.erased"]


def test_a_name_that_holds_nothing_any_more_can_be_given_again(service: Service) -> None:
    service.save("pear", project="b", session_id="s1")
    memory = service.save("apple", project="a", session_id="s1")["id"]
    service.http.delete(f"/observations/{memory}?hard=true")

    async def rename(projects: Projects) -> None:
        await projects.rename(OPERATOR, B, A)

    changed(service.path, [], rename)

    assert service.http.get("/stats").json()["projects"] == ["a"]
    assert [hit["title"] for hit in service.http.get("/search?q=pear&project=a").json()] == ["pear"]
    assert_index_is_whole(service.path)


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_what_was_merged_from_another_partition_leaves_no_byte_there(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    crowd = [Said(f"p{n}", "pear") for n in range(MOST_PROJECTS - 1)]

    async def erase(projects: Projects) -> None:
        await projects.merge(OPERATOR, A, B)
        await projects.erase(OPERATOR, B)
        await scrub_all(projects.engine, OPERATOR)

    changed(path, [Said("a", "a xylographer"), *crowd, Said("b", "quince")], erase)

    assert rows(path, "SELECT count(*) FROM partitions") == [(2,)]
    assert remains(tmp_path, "xylograph") == set()
    assert_index_is_whole(path)


@pytest.mark.sqlite_files
def test_an_erasure_that_cannot_be_audited_leaves_the_project_as_it_was(service: Service) -> None:
    service.save("apple", project="a")
    audit_file = Path(f"{service.path}.audit")
    audit_file.mkdir()

    assert service.http.delete("/projects/a?hard=true").status_code == 503

    assert service.http.get("/stats").json()["total_observations"] == 1
    audit_file.rmdir()
    Terminal().say("projects", "rename", "a", "b", "--db", service.path)
