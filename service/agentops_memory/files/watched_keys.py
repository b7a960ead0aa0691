"""The key file as a service asks it: read again whenever it has changed."""

import logging

from ..domain.errors import Unavailable
from ..domain.model.keys import KeyRing
from .keys import KeyFile, KeyFileRefused, Stamp

UNREADABLE = "The keys cannot be read; the log of the service says why."

log = logging.getLogger(__name__)


class WatchedKeys:
    """The KeyStore of a file: a change of it holds from the next question on.

    Once keys were seen, a file that cannot be read or is gone is never taken
    for one without keys.
    """

    def __init__(self, file: KeyFile) -> None:
        self._file = file
        self._known: tuple[Stamp, KeyRing] | None = None
        self._may_have_keys = False
        self._complaint = ""

    def ring(self) -> KeyRing:
        """The keys now. Unavailable when they cannot be known; the log has the reason once."""
        try:
            ring = self._ring()
        except KeyFileRefused as refusal:
            self._complain(str(refusal))
            raise Unavailable(UNREADABLE) from refusal
        self._complaint = ""
        return ring

    def read(self) -> KeyRing:
        """The keys now, for the start: KeyFileRefused has a sentence for the operator."""
        try:
            stamp, ring = self._file.read()
        except KeyFileRefused:
            self._known, self._may_have_keys = None, True
            raise
        if stamp is None and self._may_have_keys:
            raise KeyFileRefused("The key file is gone; put it back.")
        self._file.require_kept(ring)
        if ring.was_ever_used:
            self._note_keys()
        self._known, self._may_have_keys = (stamp, ring), ring.was_ever_used
        return ring

    def _ring(self) -> KeyRing:
        known = self._known
        if known is not None and self._file.stamp() == known[0]:
            return known[1]
        ring = self.read()
        log.info("keys read", extra={"keys": len(ring.keys)})
        return ring

    def _note_keys(self) -> None:
        try:
            self._file.made.note()
        except OSError as error:
            log.warning("it cannot be noted that there are keys", extra={"reason": str(error)})

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            log.error("the keys cannot be read", extra={"reason": reason})
        self._complaint = reason
