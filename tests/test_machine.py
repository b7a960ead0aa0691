"""How one machine runs the service: the compose file and the unit, read as they stand."""

import re
from configparser import ConfigParser

import agentops_memory

from .manifests import DEPLOY, NOBODY, ROOT, manifest, pod


def test_the_composed_service_runs_like_the_pod() -> None:
    service = manifest(DEPLOY / "compose.yaml")["services"]["memory"]

    assert service["image"] == f"agentops-memory:{agentops_memory.__version__}"
    assert (DEPLOY / service["build"] / "Dockerfile").resolve() == ROOT / "Dockerfile"
    assert service["user"] == f"{NOBODY}:{NOBODY}"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"] == "128m"
    assert service["volumes"] == ["data:/data", "backup:/backup"]
    assert service["healthcheck"]["test"] == ["CMD", "agentops-memory", "health"]
    assert service["stop_grace_period"] == f"{pod()['terminationGracePeriodSeconds']}s"


def test_no_port_of_a_composed_service_leaves_the_machine() -> None:
    services = manifest(DEPLOY / "compose.yaml")["services"]

    for name, service in services.items():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
        assert (name == "memory") == ("profiles" not in service)


def test_composed_services_find_each_other() -> None:
    services = manifest(DEPLOY / "compose.yaml")["services"]
    (job,) = manifest(DEPLOY / "prometheus" / "prometheus.yaml")["scrape_configs"]
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = manifest(provisioning / "datasources" / "prometheus.yaml")["datasources"]

    assert services["memory"]["environment"] == {
        "MEMORY_METRICS": "open", "MEMORY_BACKUP_DIR": "/backup"
    }  # fmt: skip
    assert job["static_configs"] == [{"targets": ["memory:7437"]}]
    assert source["url"] == "http://prometheus:9090"
    assert {"memory", "prometheus", "grafana"} == services.keys()


def test_what_a_composed_service_mounts_is_there() -> None:
    document = manifest(DEPLOY / "compose.yaml")

    for service in document["services"].values():
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            assert source in document["volumes"] or (DEPLOY / source).exists(), mount


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
