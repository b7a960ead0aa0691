"""What callers do to agents' memory: each is an agent, and tries what is another's."""

from .openintent_agents import BATCH, MEMORY, NAMESPACES, Json
from .parties import Party, Place

OF_ENTRIES = {
    f"openintent_{name}"
    for name in (
        "discover", "create_entry", "query_entries", "write_batch", "delete_batch",
        "list_namespaces", "get_namespace", "update_namespace", "get_entry", "update_entry",
        "delete_entry", "list_entries", "get_summary", "list_agent_events", "search_entries",
        "put_entry", "get_keyed_entry", "list_namespace_entries",
    )
}  # fmt: skip


def work_with_entries(place: Place, me: Party) -> None:
    """Every route, over entries of its own; then what others have."""
    agent = f"agent-{me.number}"

    def body(key: str, **fields: object) -> Json:
        return {
            "agent_id": agent, "namespace": "notes", "key": key, "value": {"text": me.word},
            "memory_type": "episodic", "tags": ["x"],
        } | fields  # fmt: skip

    made = me.ask("POST", MEMORY, body("a")).json()
    me.entries.append(made["id"])
    assert me.ask(
        "POST", BATCH, {"entries": [body("b"), body("c", memory_type="working")]}
    ).is_success
    assert me.ask("PATCH", f"{NAMESPACES}/team", {"permissions": {"default": "write"}}).is_success
    assert me.ask("POST", MEMORY, body(agent, memory_type="semantic", namespace="team",
                                       value={"by": agent})).is_success  # fmt: skip
    for path in (
        MEMORY, f"{MEMORY}/{made['id']}", f"{MEMORY}/search?q={me.word}", NAMESPACES,
        f"{NAMESPACES}/team", f"/api/v1/agents/{agent}/memory",
        f"/api/v1/agents/{agent}/memory/summary", f"/api/v1/agents/{agent}/events",
        "/.well-known/openintent.json",
    ):  # fmt: skip
        assert me.ask("GET", path).is_success, path
    kept, secret = f"/api/v1/agents/{agent}/memory/kept", {"value": me.word}
    assert me.ask("PUT", f"{kept}/f", secret).is_success
    assert len(me.ask("GET", kept).json()) == 1
    assert me.ask("GET", f"{kept}/f").json()["value"] == secret
    assert me.ask("PATCH", f"{MEMORY}/{made['id']}", {}).status_code == 428
    for other in place.others(me):
        name = f"agent-{other.number}"
        for entry in other.entries:
            assert me.ask("GET", f"{MEMORY}/{entry}").status_code == 404
            assert me.ask("DELETE", f"{MEMORY}/{entry}").status_code == 404
        assert me.ask("GET", f"/api/v1/agents/{name}/memory").is_success
        assert me.ask("GET", f"{MEMORY}/search?q={other.prefix}&namespace=*").is_success
        assert me.ask("GET", f"/api/v1/agents/{name}/memory/kept").json() == []
        assert me.ask("PUT", f"/api/v1/agents/{name}/memory/kept/f", {"value": 1}).is_client_error
        for path in ("events", "memory/summary", "memory/kept/f"):
            assert me.ask("GET", f"/api/v1/agents/{name}/{path}").status_code == 403
        assert me.ask("POST", MEMORY, body("d", agent_id=name)).status_code == 403
    assert me.ask("DELETE", f"{BATCH}?key=b").json() == {"deleted": 1, "has_more": False}
    doomed = me.ask("POST", MEMORY, body("e")).json()["id"]
    assert me.ask("DELETE", f"{MEMORY}/{doomed}").is_success
    place.driven |= OF_ENTRIES
