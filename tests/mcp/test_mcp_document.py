"""docs/mcp.md tells of every tool, and its configurations of hosts are what hosts can use."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentops_memory.cli.program import main
from agentops_memory.mcp.tools import offered
from agentops_memory.settings import ALL_TOOLS, Profile

TEXT = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text("utf-8")
ROW = re.compile(r"^\| `(mem_\w+)` \|(.*?)\|(.*)\|$", re.MULTILINE)


def test_every_tool_is_documented_with_its_arguments() -> None:
    told = {tool: set(re.findall(r"`(\w+)`", takes)) for tool, takes, _ in ROW.findall(TEXT)}
    tools = offered(Profile(tools=ALL_TOOLS))

    assert tuple(told) == ALL_TOOLS
    for name, tool in tools.items():
        taken = set(tool.takes.model_fields)
        beside = {"session_id"} if name == "mem_save" else set()  # told of under Sessions
        assert told[name] - {"discovery"} == taken - beside, name
    rows = {tool: takes for tool, takes, _ in ROW.findall(TEXT)}
    for name, argument in (("mem_search", "limit"), ("mem_timeline", "after")):
        default = tools[name].takes.model_fields[argument].default
        assert f"`{argument}` {default}" in rows[name]


def test_every_configuration_names_a_command_or_an_address_that_there_is() -> None:
    servers = list(_servers(_configurations()))
    commands = [server["args"] for server in servers if "command" in server]
    urls = [server.get("url") or server.get("httpUrl") for server in servers]

    assert len(commands) == 2
    for name, *arguments in commands:
        command = main.commands[name]
        context = command.make_context(name, arguments)
        assert context.params["project"] == "shop"
    assert [url for url in urls if url] == ["http://127.0.0.1:7437/mcp/shop"] * 4


def _configurations() -> Iterator[Any]:
    for kind, body in re.findall(r"^```(json|toml)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL):
        yield json.loads(body) if kind == "json" else tomllib.loads(body)


def _servers(given: Any) -> Iterator[dict[str, Any]]:
    """Whatever in it starts a program or names an address."""
    if isinstance(given, dict) and {"command", "url", "httpUrl"} & given.keys():
        yield given
    else:
        parts = given.values() if isinstance(given, dict) else given
        for part in parts if not isinstance(parts, str | bool) else ():
            yield from _servers(part)
