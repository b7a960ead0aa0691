"""The view *Documents*: what stores, agents and refs hold is shown as their protocols show it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..support.callers import made_key
from ..support.openintent_agents import Agent
from ..support.openwop_hosts import H, Host
from ..support.pages import Page, get, seed_documents
from ..support.samples import for_each
from ..support.service import Service, serving
from ..support.stores import NEVER, at, delete, entry, redact, store, update, versions

PAGE = "/ui/documents"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, dict[str, str]]]:
    """A service with documents of each kind, and a key of each kind."""
    path = tmp_path_factory.mktemp("closed") / "memory.db"
    with serving(path) as service:
        seed_documents(service)
        keys = {
            "admin": made_key(path, "admin", agents=("*",)),
            "reader": made_key(path, "reader", agents=("cod*", "ben")),
            "other": made_key(path, "reader", projects=("shop",), agents=("ben",)),
            "tenant": made_key(path, "admin", tenant="acme", agents=("*",)),
        }
        yield service, keys


def shown(service: Service, key: str, path: str) -> Page:
    with httpx.Client(base_url=service.url, auth=("anybody", key)) as http:
        return get(http, path)


def twins(http: httpx.Client, page: Page) -> list[dict[str, object]]:
    """What the routes in the foot answer; those of agents are asked as the page's agent."""
    agent = page.url.path.removeprefix(f"{PAGE}/agents/").partition("/")[0]
    foot = page.texts[page.texts.index("The same as JSON") :]
    paths = [it for it in foot if it.startswith(("/api", "/v1", "/anthropic"))]
    answers = [http.get(it, headers={"X-Agent-ID": agent}) for it in paths]
    return [it.raise_for_status().json() for it in answers]


@pytest.mark.slow
def test_each_number_is_the_twins_and_stored_text_is_never_markup(service: Service) -> None:
    known = seed_documents(service)
    listed = get(service.http, PAGE)
    stores, refs = twins(service.http, listed)
    words, cells = listed.words, [text for text in listed.texts if text.strip()]
    for it in stores["data"]:  # type: ignore[attr-defined]
        assert f"{it['entry_count']} documents, {it['total_size']} bytes" in words
    for it in refs["refs"]:  # type: ignore[attr-defined]
        place = cells.index(it["memoryRef"])
        assert cells[place + 1 : place + 3] == [str(it["entries"]), f"{it['bytes']} bytes"]
    summary, place = Agent(service.http, "coder").summary(), cells.index("coder")
    assert cells[place + 1 : place + 3] == [
        str(summary[tier]["entry_count"]) for tier in ("working", "episodic")
    ]
    for path in [*known, PAGE, f"{PAGE}/agents/coder",
                 f"{PAGE}/refs?memoryRef=mem://support",
                 f"{PAGE}/refs/entry?memoryRef=mem://support&memoryId=old"]:  # fmt: skip
        page = get(service.http, path)
        assert page.status == 200
        assert not [it for it in page.elements if it[1].get("id") == "hostile" or it[0] == "img"]
        assert "\u202e" not in page.text
        assert "onerror" in page.text or "deploy" in page.text
    assert "U+202E" in listed.text


@pytest.mark.slow
def test_the_pages_of_a_store_have_its_folders_documents_and_versions(service: Service) -> None:
    notes = store(service.http, "Notes")
    first = entry(service.http, notes, "deploy/staging.md", "It is deployed on Fridays.")
    for number in range(25):
        entry(service.http, notes, f"deploy/{number:02}.md")
    entry(service.http, notes, "people.md", "Ada")
    update(service.http, notes, first, "It is deployed on Mondays.")
    path = f"{PAGE}/stores/{notes['id']}"

    top = get(service.http, path)
    assert {"deploy/", "people.md", "Older changes"} <= top.links.keys()
    assert "Documents27" in top.text.replace(" ", "").replace("\n", "")
    folder = get(service.http, top.links["deploy/"])
    assert {"00.md", "19.md"} <= folder.links.keys()
    rest = get(service.http, folder.links["More"])
    assert {"20.md", "24.md", "staging.md"} <= rest.links.keys()
    assert "00.md" not in rest.links

    page = get(service.http, rest.links["staging.md"])
    words = page.words
    assert "It is deployed on Mondays." in words
    assert "From version 1 to version 2" in words
    assert [tag for tag, _ in page.elements if tag in ("del", "ins")] == ["del", "ins"]
    live, listed, one = twins(service.http, page)
    assert live["content"] == "It is deployed on Mondays."
    assert len(listed["data"]) == 2  # type: ignore[arg-type]
    assert one["content_sha256"] == live["content_sha256"]
    back = get(service.http, page.links["1"])
    assert "What version 1 changed" in back.words
    assert "It is deployed on Fridays." in back.words


def test_what_is_deleted_or_redacted_says_so_and_keeps_nothing_back(service: Service) -> None:
    notes = store(service.http, "Notes")
    made = entry(service.http, notes, "a.md", "The pass phrase is plumtree.")
    update(service.http, notes, made, "It is gone.")
    oldest = versions(service.http, notes, entry_id=made["id"])[-1]
    redact(service.http, notes, oldest)
    path = f"{PAGE}/stores/{notes['id']}/{made['id']}"

    page = get(service.http, f"{path}?version={oldest['id']}")
    assert "The text of this version was redacted." in page.words
    assert "plumtree" not in page.text + get(service.http, path).text
    delete(service.http, at(notes, "memories", made["id"]))
    page = get(service.http, path)
    assert (page.status, "Deleted" in page.text) == (200, True)
    assert made["path"] in get(service.http, f"{PAGE}/stores/{notes['id']}").links


@pytest.mark.slow
def test_an_agents_page_lists_what_its_route_lists(service: Service) -> None:
    ada, ben = Agent(service.http, "ada"), Agent(service.http, "ben")
    for number in range(23):
        ada.make(key=f"note {number}", namespace=("plans", "notes")[number % 2])
    ben.make(key="secret plan", agent_id="ben")
    ben.make(key="style", agent_id="ben", memory_type="semantic", namespace="team")

    page = get(service.http, f"{PAGE}/agents/ada")
    summary, listed = twins(service.http, page)
    assert f"{listed['total']} entries" in page.words
    assert f"{summary['episodic']['entry_count']} of" in page.words  # type: ignore[index]
    assert "secret plan" not in page.text
    older = get(service.http, page.links["Older"])
    assert "plans note 0" in older.links
    narrow = get(service.http, f"{PAGE}/agents/ada?namespace=plans&memory_type=episodic")
    assert "episodic 12" in page.words
    assert "12 entries with these filters" in narrow.words
    assert ada.query(namespace="plans", memory_type="episodic")["total"] == 12


@pytest.mark.slow
def test_a_namespace_that_is_closed_to_an_agent_is_nowhere_on_its_page(service: Service) -> None:
    Agent(service.http, "ada").make()
    ben = Agent(service.http, "ben")
    made = ben.make(agent_id="ben", memory_type="semantic", namespace="closed", key="salary")
    ben.permit("closed", default="none", ben="admin")
    key = made_key(service.path, "reader", agents=("ada", "ben"))
    ada = Agent(service.http, "ada", {"authorization": f"Bearer {key}"})

    assert "salary" in shown(service, key, f"{PAGE}/agents/ben").text
    page = shown(service, key, f"{PAGE}/agents/ada")
    assert "notes apple" in page.links
    assert "closed" not in page.text
    assert ada.query()["total"] == 1
    assert shown(service, key, f"{PAGE}/agents/ada/{made['id']}").status == 404


def test_a_confidential_value_is_shown_to_whom_its_route_shows_it_and_a_look_is_no_access(
    path: Path,
) -> None:
    with serving(path, MEMORY_EPISODIC_CAPACITY="2") as service:
        ada = Agent(service.http, "ada")
        made = ada.make(key="first", sensitivity="confidential", value={"animal": "quokka"})
        service.clock.advance(minutes=1)
        ada.make(key="second")
        service.clock.advance(minutes=1)

        listed = get(service.http, f"{PAGE}/agents/ada")
        assert "A value that is confidential" in listed.words
        assert "quokka" not in listed.text
        page = get(service.http, f"{PAGE}/agents/ada/{made['id']}")
        assert '"animal": "quokka"' in page.words
        ben = get(service.http, f"{PAGE}/agents/ben/{made['id']}")
        assert (ben.status, "quokka" in ben.text) == (404, False)
        ada.make(key="third")  # in the place of the one that was used longest ago

        assert ada.get(made).status_code == 404


@pytest.mark.slow
def test_an_entry_of_a_ref_stands_beside_the_one_that_it_replaces(service: Service) -> None:
    host = Host(service.http)
    host.put("Refunds need one signature.", id="old")
    host.put("Refunds need two signatures.", id="new", supersedes=["old"])
    for number in range(21):
        host.put(f"entry {number}", id=f"n{number}")

    page = get(service.http, f"{PAGE}/refs?memoryRef={host.ref}")
    assert {"n20", "Older"} <= page.links.keys()
    older = get(service.http, page.links["Older"])
    assert "new" in older.links
    assert "old" not in older.links
    new = get(service.http, older.links["new"])
    assert "What it changed" in new.text
    assert {"del", "ins"} <= {tag for tag, _ in new.elements}
    old = get(service.http, f"{PAGE}/refs/entry?memoryRef={host.ref}&memoryId=old")
    assert "Superseded" in old.text
    entry_, origin = twins(service.http, old)
    assert entry_["entry"]["content"] in old.text  # type: ignore[index]
    assert origin["supersededBy"] == ["new"]
    assert service.http.get(f"{H}/memory", params={"memoryRef": host.ref}).status_code == 200


@pytest.mark.slow
def test_a_key_sees_what_it_sees_by_the_routes(closed: tuple[Service, dict[str, str]]) -> None:
    service, keys = closed
    everything = shown(service, keys["admin"], PAGE)
    assert {"Team notes", "coder", "mem://support"} <= everything.links.keys()
    assert {"Team notes", "coder"} <= shown(service, keys["reader"], PAGE).links.keys()
    foreign = shown(service, keys["other"], PAGE)
    assert not {"Team notes", "coder", "mem://support"} & foreign.links.keys()
    assert "a key for every project" in foreign.text
    nothing = shown(service, keys["tenant"], PAGE)
    assert not {"Team notes", "coder", "mem://support"} & nothing.links.keys()
    assert nothing.text.count("curl localhost:7437") == 3
    paths = [everything.links[it] for it in ("Team notes", "coder", "mem://support")]
    assert [shown(service, keys["other"], it).status for it in paths] == [403, 404, 403]
    assert [shown(service, keys["tenant"], it).status for it in paths] == [404, 404, 404]
    assert [shown(service, keys["reader"], it).status for it in paths] == [200, 200, 200]


@pytest.mark.slow
@for_each(
    "path, status",
    [
        ("/stores/x", 404), (f"/stores/memstore_{NEVER}", 404),
        (f"/stores/memstore_{NEVER}/mem_{NEVER}", 404), ("?after_id=x", 404),
        ("/agents/nobody", 404), ("/agents/a%2Cb", 404), (f"/agents/nobody/mem_{NEVER}", 404),
        ("/agents/coder?offset=x", 400), ("/agents/coder?memory_type=x", 400),
        ("/agents/coder?updated_after=x", 400), ("/agents/coder/x", 404),
        ("/refs", 404), ("/refs?memoryRef=nothing", 404), ("/refs?memoryRef=tenant:acme:x", 404),
        ("/refs?memoryRef=mem://support&before=x", 400), ("/refs/entry", 404),
        ("/refs?memoryRef=mem://support&runId=x", 404),
        ("/refs/entry?memoryRef=mem://support&memoryId=limit&with=x", 404),
        ("?agent_after=%00&ref_after=%ff&name=%00&include_archived=x", 200),
    ],
)  # fmt: skip
def test_bad_input_is_answered_by_a_page(
    closed: tuple[Service, dict[str, str]], path: str, status: int
) -> None:
    service, keys = closed
    page = shown(service, keys["admin"], PAGE + path)

    assert page.status == status
    assert [tag for tag, _ in page.elements].count("h1") == 1


@pytest.mark.slow
def test_no_page_is_large_however_hostile_its_text(service: Service) -> None:
    costly = "\u202da"
    notes = store(service.http, "n", description=costly * 500, metadata={"k": costly * 250})
    made = entry(service.http, notes, "a.md", costly * 12_000)
    update(service.http, notes, made, costly[::-1] * 12_000)
    ada, host = Agent(service.http, "ada"), Host(service.http, "é" * 250)
    for number in range(25):
        entry(service.http, notes, "/".join([f"{number}"] + ["é" * 50] * 9))
        ada.make(key="é" * 190 + str(number), namespace="é" * 190 + str(number),
                 value={"said": costly * 10_000})  # fmt: skip
        host.put(costly * 10_000, id=f"{number}" + "é" * 250, tags=["é" * 250])
    last = host.put(costly, supersedes=[f"{number}" + "é" * 250 for number in range(20)])
    for path, query in (
        ("", {}), (f"/stores/{notes['id']}", {}), (f"/stores/{notes['id']}/{made['id']}", {}),
        ("/agents/ada", {}), ("/refs", {"memoryRef": host.ref}),
        ("/refs/entry", {"memoryRef": host.ref, "memoryId": last["id"]}),
    ):  # fmt: skip
        answer = service.http.get(PAGE + path, params=query)
        assert (answer.status_code, len(answer.content) < 300_000) == (200, True), path
