"""The project of the folder that a command runs in."""

import re
import tomllib
from pathlib import Path

from .errors import FileRefused

FILE = ".agentops-memory.toml"  # has `project = "name"`
_REMOTE = re.compile(r'^\s*\[remote "([^"]+)"\]|^\s*url\s*=\s*(\S+)', re.MULTILINE)


def project_here(folder: Path | None = None) -> str:
    """What FILE says in the folder or above it; else its repository's name, else its own name.

    A repository has the name of its remote, so that every clone and worktree is one project;
    without a remote it has the name of its top-level folder.
    """
    here = (folder or Path.cwd()).resolve()
    for each in (here, *here.parents):
        if (named := each / FILE).is_file():
            return _named(named)
        if (git := each / ".git").exists():
            return _of_repository(each, git)
    return here.name


def _named(file: Path) -> str:
    try:
        name = tomllib.loads(file.read_text("utf-8"))["project"]
    except (OSError, ValueError, KeyError) as error:
        raise FileRefused(f'{file} cannot be read: it is TOML with project = "name".') from error
    if not isinstance(name, str):
        raise FileRefused(f"{file}: project is a text in quotes.")
    return name


def _of_repository(top: Path, git: Path) -> str:
    try:
        if git.is_file():  # of a worktree or a submodule: it names the folder
            git = top / git.read_text("utf-8").partition("gitdir:")[2].strip()
        if (common := git / "commondir").is_file():  # that of all worktrees
            git = (git / common.read_text("utf-8").strip()).resolve()
        config = (git / "config").read_text("utf-8")
    except (OSError, ValueError):
        return top.name
    remotes: dict[str, str] = {}
    section = ""
    for remote, url in _REMOTE.findall(config):
        section = remote or section
        if url and section:
            remotes.setdefault(section, url)
    address = remotes.get("origin") or next(iter(remotes.values()), "")
    name = re.split(r"[/:\\]", address.rstrip("/"))[-1].removesuffix(".git")
    return name or (git.parent.name if git.name == ".git" else top.name)
