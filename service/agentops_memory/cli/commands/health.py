"""`health`: what a container asks, without curl."""

import http.client

from ...settings.parsing import Address

TIMEOUT = 2.0  # seconds


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
