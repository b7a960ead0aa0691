"""The application: the protocols of the service, of which OpenWOP has its seams."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from agentops_memory.backend import audit_of, registry_of
from agentops_memory.compose import PROTOCOLS
from agentops_memory.errors import SettingRefused
from agentops_memory.http.edge.auth import CREATE
from agentops_memory.http.protocol import Operation, Protocol, Services
from agentops_memory.memory.model.access import OPERATOR, TenantId
from agentops_memory.openwop.routes import PROTOCOL
from agentops_memory.settings.settings import Settings

from .routes import operations

log = logging.getLogger(__name__)


def with_seams(settings: Settings) -> Sequence[Protocol]:
    """What a service with these settings speaks, seams included; SettingRefused without keys."""
    keys = registry_of(settings)
    if not keys.ring().was_ever_used:
        raise SettingRefused(f"The conformance seams need a key, and there is none: {CREATE}.")

    def has_key(tenant: TenantId) -> bool:
        return bool(keys.ring().working(tenant))

    def mounted(services: Services) -> Sequence[Operation]:
        audit_of(settings, services.clock)(OPERATOR, "seams.enabled")
        log.warning("the conformance seams of OpenWOP are served, which no host needs")
        return operations(services, has_key)

    seamed = replace(PROTOCOL, operations=mounted)
    return [seamed if each is PROTOCOL else each for each in PROTOCOLS]
