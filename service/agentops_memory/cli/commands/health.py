"""`health`: what a container asks, without curl."""

import http.client
import sys

import click

from ...settings.parsing import Address
from ...settings.settings import settings
from ..options import setting_options

TIMEOUT = 2.0  # seconds


@click.command()
@setting_options()
def health(**flags: str | None) -> None:
    """Exit with 0 if the service that these settings describe is healthy, else with 1."""
    sys.exit(0 if is_healthy(settings(flags=flags).listen) else 1)


def is_healthy(address: Address) -> bool:
    """Whether the service at the address answers /health with 200."""
    host = address.host or "127.0.0.1"
    connection = http.client.HTTPConnection(host, address.port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, UnicodeError, http.client.HTTPException):
        return False
    finally:
        connection.close()
