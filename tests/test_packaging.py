"""What is shipped: the package and the image's recipe, read as they stand."""

import re
import shlex
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_wheel

import agentops_memory
from agentops_memory.settings.settings import VARIABLES, settings

from .manifests import BASE, NOBODY, container, manifest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "service" / "agentops_memory"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile, each instruction with what it says, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def final_stage(word: str) -> list[str]:
    """What the last stage of the Dockerfile says with this instruction."""
    lines = instructions()
    last = max(at for at, (name, _) in enumerate(lines) if name == "FROM")
    return [rest for name, rest in lines[last:] if name == word]


def image_environment() -> dict[str, str]:
    return dict(
        assignment.split("=", 1) for line in final_stage("ENV") for assignment in shlex.split(line)
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return folder / build_wheel(str(folder))


def test_the_wheel_holds_every_source_file_and_migration(wheel: Path) -> None:
    sources = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert packed == sources
    assert any(name.endswith(".sql") for name in packed)


def test_the_wheel_is_named_after_the_one_version(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert project["dynamic"] == ["version"]
    assert "version" not in project
    assert wheel.name == f"agentops_memory-{agentops_memory.__version__}-py3-none-any.whl"


def test_the_manifests_run_the_image_of_this_version() -> None:
    images = manifest(BASE / "kustomization.yaml")["images"]

    assert images == [{"name": container()["image"], "newTag": agentops_memory.__version__}]


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)

    assert newest is not None
    assert newest[1] == agentops_memory.__version__


def test_the_image_runs_the_program_and_serves_by_default() -> None:
    assert final_stage("ENTRYPOINT") == ['["agentops-memory"]']
    assert final_stage("CMD") == ['["serve"]']


def test_the_image_runs_as_nobody() -> None:
    assert final_stage("USER") == [f"{NOBODY}:{NOBODY}"]


def test_the_image_keeps_its_data_in_a_volume_that_nobody_owns() -> None:
    (setup,) = final_stage("RUN")

    assert final_stage("VOLUME") == ["/data"]
    assert f"install -d -o {NOBODY} -g {NOBODY} /data" in setup


def test_the_image_asks_its_own_program_whether_it_is_healthy() -> None:
    (check,) = final_stage("HEALTHCHECK")

    assert check.endswith('CMD ["agentops-memory", "health"]')


def test_the_image_needs_no_package_of_the_distribution() -> None:
    commands = " ".join(rest for word, rest in instructions() if word == "RUN")

    assert not re.search(r"\b(apt|apt-get|apk|curl|wget)\b", commands)


def test_the_settings_of_the_image_are_the_deployments() -> None:
    environment = image_environment()
    configured = settings(environment)

    known = {variable.name for variable in VARIABLES}
    assert {name for name in environment if name.startswith("MEMORY_")} <= known
    assert configured.listen.host == ""
    assert final_stage("EXPOSE") == [str(configured.listen.port)] == ["7437"]
    assert configured.db_path == Path("/data/memory.db")


def test_the_image_writes_no_bytecode_and_holds_no_output_back() -> None:
    environment = image_environment()

    assert environment["PYTHONDONTWRITEBYTECODE"] == environment["PYTHONUNBUFFERED"] == "1"


def test_the_stages_of_the_image_have_one_base() -> None:
    bases = {rest.split()[0] for word, rest in instructions() if word == "FROM"}

    assert len(bases) == 1
