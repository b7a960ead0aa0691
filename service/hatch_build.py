"""How the server's distribution comes by the client's, which it requires."""

import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LINK = "agentops_memory_client_sources.pth"
# Before site-packages, where an installation that was no editable one may have left a copy.
BEFORE_PACKAGES = (
    "import sys; sys.path.insert(next((at for at, path in enumerate(sys.path)"
    " if path.endswith('-packages')), 0), {!r})\n"
)


class ClientRequirement(BuildHookInterface[BuilderConfig]):
    """In a checkout the client beside the server, elsewhere the one of the same version.

    A source distribution holds no client, so what is built from it names no path.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the requirement; an editable installation finds the client's sources instead."""
        client = Path(self.root, "service", "client")
        if self.target_name == "sdist" or not client.is_dir():
            required = [f"agentops-memory-client=={self.metadata.version}"]
        elif version == "editable":
            project = tomllib.loads((client / "pyproject.toml").read_text("utf-8"))["project"]
            required = project["dependencies"]
            link = Path(self.directory, LINK)
            link.write_text(BEFORE_PACKAGES.format(str(client)), "utf-8")
            build_data["force_include_editable"][str(link)] = LINK
        else:
            required = [f"agentops-memory-client @ {client.as_uri()}"]
        build_data["dependencies"] += required
