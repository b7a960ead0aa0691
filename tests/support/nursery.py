"""The process that has loaded the program, and that others are forked from.

It forks a keeper for each order that comes over its socket. The keeper forks the process
that was ordered, tells its id, waits for it, and tells how it ended.
"""

import gc
import json
import os
import socket
import sys

LOADED = ("agentops_memory.cli.commands.service", "agentops_memory.server", "uvloop")
MOST = 64 * 1024  # bytes of an order


def main() -> None:
    """Fork for each order; go on in what is forked as a process that was just started."""
    for module in LOADED:
        __import__(module)
    gc.freeze()
    keepers = []
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        while (received := socket.recv_fds(orders, MOST, 4))[0]:
            order, files, _, _ = received
            if (keeper := os.fork()) == 0:
                orders.close()
                _keep(*files)
                _run(**json.loads(order))
                return
            keepers.append(keeper)
            for file in files:
                os.close(file)
    for keeper in keepers:
        os.waitpid(keeper, 0)


def _keep(report: int, *files: int) -> None:
    """Return in a child with these files as the last of its three; its parent reports and ends."""
    pid = os.fork()
    if pid == 0:
        os.close(report)
        for number, file in enumerate(files, 3 - len(files)):
            os.dup2(file, number)
            os.close(file)
        return
    for number in (1, 2, *files):
        os.close(number)
    os.write(report, str(pid).encode())
    _, status = os.waitpid(pid, 0)
    os.write(report, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run(code: str, arguments: list[str], variables: dict[str, str], cwd: str) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["", *arguments]
    exec(code, {"__name__": "__main__"})  # noqa: S102 - a test's own


if __name__ == "__main__":
    main()
