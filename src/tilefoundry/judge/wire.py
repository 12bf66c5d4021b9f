"""What passes between two processes of ours: JSON messages over a socket, and descriptors.

A message is four bytes of length and JSON. Neither side unpickles anything, and the parent
believes nothing that it does not check.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST_MESSAGE = 64 << 20
MOST_DESCRIPTORS = 200
"""Descriptors that pass with one message."""


class Malformed(Exception):
    """What came from a child does not have the form that it must have."""


def send(end: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    data = struct.pack("<I", len(data)) + data
    if descriptors:
        sent = socket.send_fds(end, [data], list(descriptors))
        data = data[sent:]
    end.sendall(data)


class Inbox:
    """Bytes as they come, and the messages in them."""

    def __init__(self) -> None:
        self.data = bytearray()

    def take(self) -> dict[str, Any] | None:
        """The next message if it is whole; :class:`Malformed` for what is none."""
        if len(self.data) < 4:
            return None
        (length,) = struct.unpack_from("<I", self.data)
        if length > LONGEST_MESSAGE:
            raise Malformed(f"a message of {length} bytes")
        if len(self.data) < 4 + length:
            return None
        try:
            message = json.loads(bytes(self.data[4 : 4 + length]))
        except (ValueError, RecursionError):
            raise Malformed("a message that is not JSON") from None
        finally:
            del self.data[: 4 + length]
        if not isinstance(message, dict):
            raise Malformed("a message that is not an object")
        return message


def receive(end: socket.socket, descriptors: list[int] | None = None) -> dict[str, Any] | None:
    """The next message; None where the other end is closed. Blocks.

    Descriptors that come with it are appended to ``descriptors``.
    """
    inbox = Inbox()
    while (message := inbox.take()) is None:
        # never beyond the message: what follows it belongs to the next call
        need = 4 - len(inbox.data)
        if need <= 0:
            need = 4 + struct.unpack_from("<I", inbox.data)[0] - len(inbox.data)
        try:
            if descriptors is None:
                data = end.recv(min(need, 1 << 20))
            else:
                data, given, _, _ = socket.recv_fds(end, min(need, 1 << 20), MOST_DESCRIPTORS)
                descriptors += given
        except ConnectionError:
            return None
        if not data:
            return None
        inbox.data += data
    return message
