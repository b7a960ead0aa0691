"""The application: the service, of which OpenWOP has its seams."""

import logging
from collections.abc import Sequence

from agentops_memory.backend import audit_of, registry_of
from agentops_memory.errors import SettingRefused
from agentops_memory.http.gate import CREATE
from agentops_memory.http.protocol import Operation
from agentops_memory.memory.access import OPERATOR, TenantId
from agentops_memory.openwop.api import Serving
from agentops_memory.openwop.routes import OpenWopOperations
from agentops_memory.settings import Settings

from .routes import operations

log = logging.getLogger(__name__)


def with_seams(settings: Settings) -> OpenWopOperations:
    """The operations of OpenWOP with the seams; SettingRefused without keys."""
    keys = registry_of(settings)
    if not keys.ring().was_ever_used:
        raise SettingRefused(f"The conformance seams need a key, and there is none: {CREATE}.")

    def has_key(tenant: TenantId) -> bool:
        return bool(keys.ring().working(tenant))

    def mounted(services: Serving) -> Sequence[Operation]:
        audit_of(settings, services.clock)(OPERATOR, "seams.enabled")
        log.warning("the conformance seams of OpenWOP are served, which no host needs")
        return operations(services, has_key)

    return mounted
