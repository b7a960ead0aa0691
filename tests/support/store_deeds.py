"""What a keeper of memory stores does, and what others try with the ids of its stores."""

from collections.abc import Callable

from .parties import Body, Party, Place
from .store_dialects import CLOUD, UNKNOWN, every_request
from .stores import STORES, ok

NOBODYS = dict(zip(("store", "memory", "version"), UNKNOWN, strict=True))


def make_store(_: Place, me: Party) -> None:
    body = {"name": f"apples of {me.word}", "metadata": {"of": me.word}}
    me.stores.append(ok(me.ask("POST", STORES, body), 201)["id"])


def write_entry(place: Place, me: Party) -> None:
    for store in _some(place, me.stores):
        body = {
            "path": f"{me.word}/{place.chance.randrange(6)}",
            "content": f"The apple is {me.word}, and so is the pear.",
        }
        assert me.ask("POST", f"{STORES}/{store}/memories", body).status_code in (201, 409)


def change_entry(place: Place, me: Party) -> None:
    for store in _some(place, me.stores):
        for entry in _some(place, _ids(me, f"{store}/memories")):
            path = f"{STORES}/{store}/memories/{entry}"
            content = f"Another apple of {me.word}, {place.chance.random()}"
            assert me.ask("PUT", path, {"content": content}).status_code in (200, 409)
            if place.chance.random() < 0.3:
                assert me.ask("DELETE", path).status_code in (204, 409)


def redact_version(place: Place, me: Party) -> None:
    for store in _some(place, me.stores):
        for version in _some(place, _ids(me, f"{store}/versions")):
            path = f"{STORES}/{store}/versions/{version}/redact"
            assert me.ask("POST", path).status_code in (200, 409)


def close_store(place: Place, me: Party) -> None:
    for store in _some(place, me.stores):
        if place.chance.random() < 0.3:
            assert me.ask("POST", f"{STORES}/{store}/archive").status_code in (200, 409)
        if place.chance.random() < 0.2:
            assert me.ask("DELETE", f"{STORES}/{store}").status_code == 204
            me.stores.remove(store)


def look_into_stores(_: Place, me: Party) -> None:
    """Every list holds just what is its own."""
    listed = ok(me.ask("GET", f"{STORES}?include_archived=true&limit=100"))["data"]
    stocked = {ids[0] for ids in me.foreign_stores}  # before anybody came
    assert sorted({each["id"] for each in listed} - stocked) == sorted(me.stores)
    for store in me.stores:
        told = ok(me.ask("GET", f"{STORES}/{store}"))
        entries = _ids(me, f"{store}/memories")
        assert told["entry_count"] == len(entries)
        found = _ids(me, f"{store}/search?q=apple")
        assert set(found) == set(entries)
        for entry in entries:
            assert me.word in ok(me.ask("GET", f"{STORES}/{store}/memories/{entry}"))["path"]
        for version in _ids(me, f"{store}/versions"):
            ok(me.ask("GET", f"{STORES}/{store}/versions/{version}"))


def touch_foreign_stores(place: Place, me: Party) -> None:
    """What the keeper of another tenant has is as what never was, alone and in a store of mine."""
    for other in place.keepers:
        if other is not me:
            theirs = _names(place, other)
            for mine in [{}, *({"store": store} for store in me.stores[:1])]:
                _all_the_same(me, theirs | mine, NOBODYS | mine, 404)
            for cursor in ("after_id", "before_id"):
                me.ask("GET", f"{STORES}?{cursor}={theirs['store']}")


def ask_without_right(place: Place, me: Party) -> None:
    """A key for some projects is told the same of every store, and makes and lists none."""
    names = _names(place, me)
    for party in place.parties:
        _all_the_same(party, names, NOBODYS, 403)
        assert party.ask("POST", STORES, {"name": "mine"}).status_code == 403
        assert party.ask("GET", STORES).status_code == 403


STORE_DEEDS: dict[Callable[[Place, Party], None], set[str]] = {
    make_store: {"create_store"},
    write_entry: {"create_entry"},
    change_entry: {"update_entry", "delete_entry"},
    redact_version: {"redact_version"},
    close_store: {"archive_store", "delete_store"},
    look_into_stores: {
        "list_stores", "get_store", "list_entries", "get_entry", "list_versions", "get_version",
        "search_store",
    },
    touch_foreign_stores: set(),
    ask_without_right: set(),
}  # fmt: skip


def _all_the_same(
    party: Party, theirs: dict[str, str], nobodys: dict[str, str], status: int
) -> None:
    for it, like in zip(_requests(theirs), _requests(nobodys), strict=True):
        if it == like:
            continue  # it names nothing of theirs
        one, other = (party.ask(*each) for each in (it, like))
        text = one.text
        for kind, id_ in theirs.items():
            text = text.replace(id_, nobodys[kind])
        assert (one.status_code, text) == (other.status_code, other.text)
        is_filter = "entry_id=" in it[1] and theirs["store"] == nobodys["store"]
        assert one.status_code == (200 if is_filter else status), (it, one.text)


def _requests(ids: dict[str, str]) -> list[tuple[str, str, Body | None]]:
    """Every way to name a store, or what is in one."""
    every = every_request(ids["store"], ids["memory"], ids["version"], CLOUD)
    found: list[tuple[str, str, Body | None]] = [(it.method, it.path, it.body) for it in every]
    versions = f"{STORES}/{ids['store']}/versions?entry_id={ids['memory']}"
    return [*found, ("GET", versions, None)]


def _names(place: Place, me: Party) -> dict[str, str]:
    """Ids that the party knows to be there, or that never were."""
    for store in _some(place, me.stores):
        entries, versions = _ids(me, f"{store}/memories"), _ids(me, f"{store}/versions")
        return {
            "store": store,
            "memory": (entries or [NOBODYS["memory"]])[0],
            "version": (versions or [NOBODYS["version"]])[0],
        }
    return NOBODYS


def _some(place: Place, ids: list[str]) -> list[str]:
    """One of them, if there are any."""
    return [place.chance.choice(ids)] if ids else []


def _ids(me: Party, path: str) -> list[str]:
    mark = "&" if "?" in path else "?"
    listed = ok(me.ask("GET", f"{STORES}/{path}{mark}limit=100"))["data"]
    return [each["id"] for each in listed]
