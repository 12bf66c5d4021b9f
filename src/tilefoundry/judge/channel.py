"""What passes between parent and child: JSON messages over a socket, tensors as raw bytes.

A message is four bytes of length and JSON. Outputs go into a file that the parent made and
holds open: a count, then for each tensor its element type, shape and bytes. Neither side
unpickles anything, and the parent believes nothing that it does not check.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from tilefoundry.ir.dtype import DTYPES, DType
from tilefoundry.judge.tensor import RawTensor, Shape, size

LONGEST_MESSAGE = 64 << 20
MAGIC = b"TFOUT001"
COUNT = struct.Struct("<8sI")
HEAD = struct.Struct("<II")
EXTENT = struct.Struct("<Q")
MOST_TENSORS, MOST_AXES = 4096, 64
TYPES: Sequence[DType] = tuple(DTYPES.values())


class Malformed(Exception):
    """What came from a child does not have the form that it must have."""


def send(end: socket.socket, message: Mapping[str, Any]) -> None:
    data = json.dumps(message).encode()
    end.sendall(struct.pack("<I", len(data)) + data)


def receive(end: socket.socket) -> dict[str, Any] | None:
    """The next message; None where the other end is closed. A socket's timeout applies."""
    head = _exactly(end, 4)
    if head is None:
        return None
    (length,) = struct.unpack("<I", head)
    if length > LONGEST_MESSAGE:
        raise Malformed(f"a message of {length} bytes")
    data = _exactly(end, length)
    if data is None:
        return None
    try:
        message = json.loads(data)
    except ValueError:
        raise Malformed("a message that is not JSON") from None
    if not isinstance(message, dict):
        raise Malformed("a message that is not an object")
    return message


def _exactly(end: socket.socket, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        try:
            part = end.recv(min(count, 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def write_outputs(
    file: BinaryIO, tensors: Sequence[tuple[DType, Shape, bytes | memoryview]]
) -> None:
    """Write tensors in the form that :func:`read_outputs` reads."""
    file.write(COUNT.pack(MAGIC, len(tensors)))
    for dtype, shape, data in tensors:
        file.write(HEAD.pack(TYPES.index(dtype), len(shape)))
        file.write(b"".join(EXTENT.pack(extent) for extent in shape))
        file.write(data)
    file.flush()


def read_outputs(file: BinaryIO) -> list[RawTensor]:
    """The tensors of an output file; :class:`Malformed` where it is not whole."""
    left = os.fstat(file.fileno()).st_size
    file.seek(0)

    def take(count: int) -> bytes:
        nonlocal left
        left -= count
        data = file.read(count) if left >= 0 else b""
        if len(data) != count:
            raise Malformed("outputs that are cut off")
        return data

    magic, count = COUNT.unpack(take(COUNT.size))
    if magic != MAGIC or count > MOST_TENSORS:
        raise Malformed("outputs without their head")
    found: list[RawTensor] = []
    for _ in range(count):
        kind, rank = HEAD.unpack(take(HEAD.size))
        if kind >= len(TYPES) or rank > MOST_AXES:
            raise Malformed("an output of no known form")
        shape = tuple(EXTENT.unpack(take(EXTENT.size))[0] for _ in range(rank))
        found.append(
            RawTensor.from_bytes(TYPES[kind], shape, take(size(shape) * TYPES[kind].bits // 8))
        )
    return found
