"""Tenants: the names that they may have."""

import re

from .errors import Invalid
from .model import TenantId

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def tenant_id(text: str) -> TenantId:
    """The text as a tenant's name, which is safe as a file's; Invalid if it is none."""
    if not _NAME.fullmatch(text):
        raise Invalid(
            "A tenant's name has 1 to 63 of the characters a-z, 0-9 and -, and does not begin "
            "with -."
        )
    return TenantId(text)
