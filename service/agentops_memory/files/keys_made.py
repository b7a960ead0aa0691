"""That a service has keys, known apart from their file: to lose that opens the service to nobody.

The audit tells, but its lines go with time, and keys may be made elsewhere and mounted. So it is
noted by an empty file as well, which only a reset removes.
"""

import os
from pathlib import Path

from .audit import private_file
from .audit_trail import were_keys_made
from .fsync import sync


class KeysMade:
    """Whether keys were made since the last reset. Each method may raise an OSError."""

    def __init__(self, audit: Path) -> None:
        self._audit = audit
        self._note = audit.with_suffix(".closed")

    def is_known(self) -> bool:
        """Whether the note or the audit says so."""
        return self._note.exists() or were_keys_made(self._audit)

    def note(self) -> None:
        """Say so from now on; on disk when this returns."""
        if not self._note.exists():
            with private_file(self._note, os.O_WRONLY, like=self._note.parent):
                pass
            sync(self._note.parent)

    def forget(self) -> None:
        """They were reset, as the audit tells already."""
        self._note.unlink(missing_ok=True)
