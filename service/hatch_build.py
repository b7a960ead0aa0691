"""The build hook: requires the client's distribution, and copies Swagger UI into the server's."""

import shutil
import tomllib
from contextlib import nullcontext, suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Copied, as requiring flask-swagger-ui would install Flask.
VIEWER = Path("service", "agentops_memory", "http", "docs_page", "viewer")
VIEWER_FILES = ("swagger-ui.css", "index.css", "swagger-ui-bundle.js")
LINK = "agentops_memory_client_sources.pth"
# Before site-packages, where an earlier installation may have left a copy.
BEFORE_PACKAGES = (
    "import sys; sys.path.insert(next((at for at, path in enumerate(sys.path)"
    " if path.endswith('-packages')), 0), {!r})\n"
)


class ClientRequirement(BuildHookInterface[BuilderConfig]):
    """Requires the client: in a checkout the one beside the server, elsewhere the same version.

    A source distribution lacks the client, so a wheel built from it names no path.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the requirement; an editable installation finds the client's sources instead."""
        self._copy_viewer()
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

    def _copy_viewer(self) -> None:
        folder = Path(self.root, VIEWER)
        is_there = all((folder / name).is_file() for name in VIEWER_FILES)
        folder.mkdir(exist_ok=True)
        # A build without isolation may use the files that are there.
        with suppress(PackageNotFoundError) if is_there else nullcontext():
            files = Path(str(distribution("flask-swagger-ui").locate_file("flask_swagger_ui/dist")))
            for name in VIEWER_FILES:
                shutil.copyfile(files / name, folder / name)
