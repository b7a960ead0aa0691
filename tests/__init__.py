"""The service, tested through its front door, whatever the environment says."""

import os
import re

MACHINE = dict(os.environ)
"""The environment as it was; for what has to reach a package index."""

# What the service, its libraries and its client read, and what terminals are told.
_READ = re.compile(
    r"(MEMORY|OTEL|ANTHROPIC|XDG|LC)_.*|PG(?!URL).*|.*_proxy|LANG|COLUMNS|LINES|NO_COLOR|FORCE_COLOR"
    r"|PYTHON(UNBUFFERED|UTF8|IOENCODING|WARNINGS|OPTIMIZE|HASHSEED|ASYNCIODEBUG|DEVMODE)",
    re.IGNORECASE,
)

# Here, before anything is imported: some libraries read them then.
for name in filter(_READ.fullmatch, MACHINE):
    del os.environ[name]
