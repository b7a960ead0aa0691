"""An HTTP client that costs little: one socket, one request at a time, kept open."""

import json
import socket
from urllib.parse import urlencode

Request = bytes


def get(path: str, **parameters: str | int) -> Request:
    """A GET request, ready to send."""
    return f"GET {path}?{urlencode(parameters)} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def post(path: str, body: object) -> Request:
    """A POST request with a JSON body, ready to send."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: Request) -> bytes:
        """The body of the answer, which must be a good one."""
        self._socket.sendall(request)
        answer = self._socket.recv(1 << 20)
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self._more()
        head, body = answer[:end], answer[end + 4 :]
        if not head.startswith(b"HTTP/1.1 20"):
            raise SystemExit(answer.decode("utf-8", "replace"))
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += self._more()
        return body

    def close(self) -> None:
        self._socket.close()

    def _more(self) -> bytes:
        block = self._socket.recv(1 << 20)
        if not block:
            raise SystemExit("The service closed the connection.")
        return block
