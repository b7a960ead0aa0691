"""Schemathesis's own run, in all of its phases: examples, edges, anything, and what follows."""

import os
import subprocess
import sys
import tempfile

from .tally import Tally

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance",
)  # fmt: skip
QUICKEST = 5  # seconds that it takes at least


def described(url: str, key: str, *, seed: int, seconds: float) -> Tally:
    """Requests made of the service's description of itself, and answers held against it."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [
                sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json",
                "--header", f"Authorization: Bearer {key}",
                "--phases", "examples,coverage,fuzzing,stateful", "--mode", "all",
                "--checks", ",".join(CHECKS), "--warnings", "off", "--continue-on-failure",
                "--suppress-health-check", "all", "--request-timeout", "20", "--no-color",
                "--seed", str(seed), "--max-time", str(max(QUICKEST, int(seconds))),
            ],
            cwd=folder, capture_output=True, text=True, check=False, env=os.environ,
        )  # fmt: skip
    tally = Tally()
    if run.returncode != 0:
        failures = run.stdout.partition("FAILURES")[2] or run.stdout + run.stderr
        tally.untrue.append(failures.replace(key, "$KEY"))
    return tally
