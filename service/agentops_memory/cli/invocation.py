"""Who runs a command, and when."""

import os
import pwd
from contextlib import suppress
from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)


def user() -> dict[str, object]:
    """Who runs this, as the system knows it; a container may have a user without a name."""
    uid, name = os.getuid(), ""
    with suppress(KeyError):
        name = pwd.getpwuid(uid).pw_name
    return {"user": name, "uid": uid}
