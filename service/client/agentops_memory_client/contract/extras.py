"""How an extra of either distribution is installed: no package index has them by name yet."""

import json
import shlex
from pathlib import Path
from urllib.parse import urlsplit

CLIENT, SERVER = "agentops-memory-client", "agentops-memory"


def install_command(name: str, extra: str) -> str:
    """The shell command that installs an extra, from where the distribution was installed.

    From its folder if that is still there, as a checkout is; else what the extra requires
    is installed by itself, as beside a wheel.
    """
    from urllib.request import url2pathname  # noqa: PLC0415 - as below: it takes 15 ms

    requirements, origin = _installed(name)
    folder = Path(url2pathname(urlsplit(origin["url"]).path)) if "dir_info" in origin else None
    if folder is None or not (folder / "pyproject.toml").is_file():
        lines = (line.partition(";") for line in requirements)
        needed = [line.strip() for line, _, marker in lines if f"'{extra}'" in marker]
        return f"pip install {' '.join(map(shlex.quote, needed))}"
    command = f"pip install '.[{extra}]'"
    is_here = folder.resolve() == Path.cwd().resolve()
    return command if is_here else f"cd {shlex.quote(str(folder))} && {command}"


def _installed(name: str) -> tuple[list[str], dict[str, str]]:
    """What a distribution requires, and the origin that its installer noted (PEP 610)."""
    # Not at the top: it takes 20 ms, and only what is missing needs it.
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415

    try:
        installed = distribution(name)
    except PackageNotFoundError:  # the client's sources, on the path of an editable server
        return [], {"url": Path(__file__).parents[2].as_uri(), "dir_info": ""}
    return installed.requires or [], json.loads(installed.read_text("direct_url.json") or "{}")
