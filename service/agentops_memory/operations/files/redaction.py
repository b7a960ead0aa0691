"""What is not taken for a secret, by tenant: a small file that an operator writes."""

import json
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...engine.files import opened, stamp_of
from ...errors import Invalid, Refusal
from ...light import dataclass, field
from ...memory.access import TenantId, tenant_id
from ...secrets.redaction import DEFAULT_RULES, Rules

LARGEST = 1024 * 1024  # bytes

Exceptions = Mapping[TenantId, Rules]

log = logging.getLogger(__name__)


class RedactionFileRefused(Refusal):
    """The file cannot be used; the sentence says why."""

    code = "start_refused"


@dataclass(slots=True, eq=False)
class RedactionFile:
    """The exceptions as the file has them at each question. A file that is not there has none.

    When a change cannot be used, those before it stay, and the log says so.
    """

    path: Path
    _stamp: object = None
    _exceptions: Exceptions = field(default_factory=dict)

    def read(self) -> None:
        """Read it, for the start: RedactionFileRefused has a sentence for the operator."""
        self._stamp = self._look()
        self._exceptions = _read(self.path) if self._stamp else {}

    def rules(self, tenant: TenantId) -> Rules:
        if self._look() != self._stamp:
            try:
                self.read()
            except RedactionFileRefused as refusal:
                log.error(
                    "the redaction file cannot be reloaded; the previous rules stay in effect",
                    extra={"reason": str(refusal)},
                )
        return self._exceptions.get(tenant, DEFAULT_RULES)

    def _look(self) -> object:
        try:
            return stamp_of(self.path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:  # it is there, and to read it will tell why it cannot be read
            return error.errno


def _read(path: Path) -> Exceptions:
    try:
        return _exceptions(json.loads(_contents(path)))
    except OSError as error:
        raise _refused(path, str(error.strerror)) from error
    except (ValueError, RecursionError) as error:
        raise _refused(path, "it is no JSON") from error
    except Invalid as fault:
        raise _refused(path, str(fault).removesuffix(".")) from fault


def _contents(path: Path) -> bytes:
    with opened(path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refused(path, "it is not a file")
        return file.read(LARGEST)


def _refused(path: Path, reason: str) -> RedactionFileRefused:
    return RedactionFileRefused(f"The redaction file {path} cannot be used: {reason}.")


def _exceptions(document: Any) -> Exceptions:
    if not isinstance(document, dict):
        raise Invalid("It must be a JSON object of tenants.")
    exceptions = {}
    for tenant, allowed in document.items():
        id_ = tenant_id(tenant)
        if not isinstance(allowed, dict) or allowed.keys() - {"allow", "allow_kinds"}:
            raise Invalid(f"Tenant {tenant} may have only allow and allow_kinds.")
        exceptions[id_] = Rules(
            allowed=_texts(tenant, allowed.get("allow", [])),
            allowed_kinds=_texts(tenant, allowed.get("allow_kinds", [])),
        )
    return exceptions


def _texts(tenant: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise Invalid(f"What tenant {tenant} allows is not a list of texts.")
    return frozenset(value)
