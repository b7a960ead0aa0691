"""How one machine runs the service: the compose file and the unit, read as they stand."""

import re
from configparser import ConfigParser
from typing import Any

import pytest

import agentops_memory

from ..support.manifests import DEPLOY, NOBODY, ROOT, manifest, pod

ON_A_FILE, ON_POSTGRESQL = "compose.yaml", "compose.postgresql.yaml"


def composed(name: str) -> dict[str, Any]:
    """The services of a compose file."""
    services: dict[str, Any] = manifest(DEPLOY / name)["services"]
    return services


@pytest.mark.parametrize("name", [ON_A_FILE, ON_POSTGRESQL])
def test_the_composed_service_runs_like_the_pod_and_what_it_mounts_is_there(name: str) -> None:
    service = composed(name)["memory"]

    assert service["image"] == f"agentops-memory:{agentops_memory.__version__}"
    assert (DEPLOY / service["build"] / "Dockerfile").resolve() == ROOT / "Dockerfile"
    assert service["user"] == f"{NOBODY}:{NOBODY}"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"] == "128m"
    assert service["healthcheck"]["test"] == ["CMD", "agentops-memory", "health"]
    assert service["stop_grace_period"] == f"{pod()['terminationGracePeriodSeconds']}s"
    document = manifest(DEPLOY / name)
    for mounting in document["services"].values():
        for mount in mounting.get("volumes", ()):
            source = mount.split(":")[0]
            assert source in document["volumes"] or (DEPLOY / source).exists(), mount


def test_no_port_of_a_composed_service_leaves_the_machine() -> None:
    for services in (composed(ON_A_FILE), composed(ON_POSTGRESQL)):
        for name, service in services.items():
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
    for name, service in composed(ON_A_FILE).items():
        assert (name == "memory") == ("profiles" not in service)


RUN = re.compile(r"\b(?:docker|podman|nerdctl)(?: container)? (?:run|create)\b[^\n`]*")
PUBLISHED = re.compile(r"\s(?:-p[= ]?|--publish[= ])(?!127\.0\.0\.1:|\[::1\]:)\S")
ALL_PUBLISHED = re.compile(r"\s(?:-P|--publish-all|--net(?:work)?[= ]host)\b")


def exposed(text: str) -> list[str]:
    """The commands in a text that run a container which other machines can reach."""
    commands = RUN.findall(re.sub(r"\\\n\s*", "", text))
    return [it for it in commands if PUBLISHED.search(it) or ALL_PUBLISHED.search(it)]


def test_no_document_runs_a_container_that_other_machines_can_reach() -> None:
    folders = (DEPLOY, ROOT / "docs", ROOT / "helm", ROOT / "service")
    texts = [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "Dockerfile", "Makefile")),
        *(path for folder in folders for path in folder.rglob("*")
          if path.suffix in {".md", ".yaml", ".txt", ".service", ".json"}),
    ]  # fmt: skip
    found = {path: path.read_text("utf-8") for path in texts}

    assert {path: exposed(text) for path, text in found.items() if exposed(text)} == {}
    assert any(RUN.search(text) for text in found.values())
    assert {it.name for it in DEPLOY.rglob("compose*.yaml")} == {ON_A_FILE, ON_POSTGRESQL}


def test_composed_services_find_each_other() -> None:
    services = composed(ON_A_FILE)
    (job,) = manifest(DEPLOY / "prometheus" / "prometheus.yaml")["scrape_configs"]
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = manifest(provisioning / "datasources" / "prometheus.yaml")["datasources"]

    assert services["memory"]["volumes"] == ["data:/data", "backup:/backup"]
    assert services["memory"]["environment"] == {
        "MEMORY_METRICS": "open", "MEMORY_BACKUP_DIR": "/backup"
    }  # fmt: skip
    assert job["static_configs"] == [{"targets": ["memory:7437"]}]
    assert source["url"] == "http://prometheus:9090"
    assert {"memory", "prometheus", "grafana"} == services.keys()


def test_a_composed_service_waits_for_its_database_and_both_have_its_password() -> None:
    services = composed(ON_POSTGRESQL)
    memory, postgres = services["memory"], services["postgres"]
    role, database = (postgres["environment"][f"POSTGRES_{it}"] for it in ("USER", "DB"))
    password = r"\$\{POSTGRES_PASSWORD:\?[^}]+\}"  # noqa: S105 - a variable of compose

    assert services.keys() == {"memory", "postgres"}
    assert int(postgres["image"].removeprefix("postgres:")) >= 15
    assert memory["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert postgres["healthcheck"]["test"][:2] == ["CMD", "pg_isready"]
    assert memory["environment"].keys() == {"MEMORY_DATABASE_URL"}
    assert re.fullmatch(
        f"postgresql://{role}:{password}@postgres/{database}",
        memory["environment"]["MEMORY_DATABASE_URL"],
    )
    assert not {"ports", "command"} & postgres.keys()
    (secret,) = postgres["secrets"]
    assert manifest(DEPLOY / ON_POSTGRESQL)["secrets"] == {
        secret: {"environment": "POSTGRES_PASSWORD"}
    }
    assert postgres["environment"]["POSTGRES_PASSWORD_FILE"] == f"/run/secrets/{secret}"
    assert "/deploy/.env" in (ROOT / ".gitignore").read_text("utf-8").splitlines()


def test_the_unit_is_confined_and_has_time_to_end() -> None:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd" / "agentops-memory.service", "utf-8")
    service = unit["Service"]

    assert service["ExecStart"].endswith("/bin/agentops-memory serve")
    assert service["EnvironmentFile"] == "-/etc/agentops-memory.env"
    assert service["StateDirectory"] == "agentops-memory"
    assert service["WorkingDirectory"] == "%S/agentops-memory"
    assert "MEMORY_DB_PATH=%S/agentops-memory/memory.db" in service["Environment"].split()
    assert service["RestrictAddressFamilies"].split() == ["AF_INET", "AF_INET6", "AF_UNIX"]
    assert service["CapabilityBoundingSet"] == ""
    assert service["ProtectSystem"] == "strict"
    assert service["ReadWritePaths"] == "-/var/backups/agentops-memory"  # "-": it may be missing
    assert service["NoNewPrivileges"] == service["PrivateTmp"] == "yes"
    assert service["MemoryMax"] == "128M"
    assert service["Restart"] == "on-failure"
    assert service["TimeoutStopSec"] == "30s"
    assert "ProcSubset" not in service  # without /proc/stat the process cannot be measured


def test_a_command_for_a_machine_names_what_exists() -> None:
    text = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    commands = "".join(re.findall(r"^```console-host\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    named = re.findall(r"(?:deploy|\.ci)/\S+", commands)

    assert {"deploy/compose.yaml", "deploy/systemd/agentops-memory.service"} <= set(named)
    assert [path for path in named if not (ROOT / path).exists()] == []
