"""Python imports this by itself where its folder is in PYTHONPATH: connections to the ports that other projects' tests
name go to the port that APPS_PORT names. Processes that a test starts are redirected alike."""

import os
import socket

# Redis' usual port, and the one where cachelib's and Flask-Caching's tests start a server for themselves.
NAMED_PORTS = (6379, 6360)


def redirected(connect):
    def to(self, address):
        if isinstance(address, tuple) and address[1] in NAMED_PORTS:
            address = (address[0], int(os.environ["APPS_PORT"]), *address[2:])
        return connect(self, address)

    return to


if "APPS_PORT" in os.environ:
    socket.socket.connect = redirected(socket.socket.connect)
    socket.socket.connect_ex = redirected(socket.socket.connect_ex)
