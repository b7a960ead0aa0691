"""Gives agents of the package `openintent` 0.17.0 a working `self.memory`.

Import this module once, before any agent is made. An agent's tier is that of
`@Agent(..., memory="episodic")`, its namespace the `memory_namespace` of its `AgentConfig`.
"""

# ruff: noqa: SLF001 - the package has no public way to its client

from openintent import OpenIntentError, agents


class AgentMemory:
    """The `self.memory` of an agent: its entries in one tier and namespace."""

    def __init__(self, client, agent_id, memory_type="episodic", namespace=None):
        self.client, self.agent = client, agent_id
        self.place = {"namespace": namespace or "default", "memory_type": memory_type}

    async def store(self, key, value, tags=None):
        value = value if isinstance(value, dict) else {"value": value}
        new = {"key": key, "value": value, "tags": tags, **self.place}
        try:
            return await self.client.create_memory(self.agent, **new)
        except OpenIntentError as error:  # the key is taken: replace its entry
            if not (current := (error.response or {}).get("current")):
                raise
            change = {"value": value, "tags": tags}
            return await self.client.update_memory(current["id"], current["version"], **change)

    async def query(self, key=None, tags=None, query=None, limit=100):
        params = {"key": key, "tags": ",".join(tags or ()), "limit": limit, **self.place}
        by_words = query and not key and self.place["memory_type"] != "working"
        path = "/api/v1/memory/search" if by_words else "/api/v1/memory"
        answer = await self.client._client.get(path, params={**params, "q": query})
        return self.client._handle_response(answer)["entries"]

    async def pin(self, key):
        for entry in await self.query(key):
            await self.client.update_memory(entry["id"], entry["version"], pinned=True)

    async def delete(self, key):
        for entry in await self.query(key):
            await self.client.delete_memory(entry["id"])

    recall, forget = query, delete  # as the package calls them


agents._MemoryProxy = AgentMemory
