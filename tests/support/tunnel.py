"""A CONNECT proxy on loopback that notes what it was asked for."""

from __future__ import annotations

import contextlib
import socket
import threading

from support.rawserver import RawServer


def make_tunnel(answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> tuple[RawServer, list[str]]:
    """The proxy, not started yet, and the targets that it will have been asked for. It connects wherever it is told: to 127.0.0.1."""
    targets: list[str] = []
    proxy = RawServer(lambda _: None)

    def connect(client: socket.socket) -> None:
        head = proxy.requests[-1].split(b"\r\n", 1)[0].decode()
        method, target, _ = head.split(" ")
        targets.append(f"{method} {target}")
        client.sendall(answer)
        if not answer.startswith(b"HTTP/1.1 200") or method != "CONNECT":
            return
        with socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2]))) as server:
            back = threading.Thread(target=_pump, args=(server, client), daemon=True)
            back.start()
            _pump(client, server)
            back.join(5)

    proxy._answers = [connect]
    return proxy, targets


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(65536):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)
