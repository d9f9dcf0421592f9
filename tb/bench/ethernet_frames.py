# SPDX-License-Identifier: Apache-2.0
"""Ethernet frames between a host and a board: UDP there and back, and ARP."""

from __future__ import annotations

import struct
import zlib

from weft.hw.contract.host_link import ETHERBONE_PORT

BOARD_MAC, BOARD_IP = bytes.fromhex("10e2d5000000"), bytes([192, 168, 1, 50])
"""LiteX's defaults."""
HOST_MAC, HOST_IP = bytes.fromhex("020000000001"), bytes([192, 168, 1, 100])
PREAMBLE = bytes([0x55] * 7 + [0xD5])
IPV4, ARP, UDP, REPLY = 0x0800, 0x0806, 17, 2
LEAST_BYTES = 60
"""The bytes of the shortest frame without its CRC."""
HEADS = 14 + 20 + 8
"""The bytes in front of a datagram's payload."""


def frame(kind: int, content: bytes) -> bytes:
    """Return the bytes on the wire of a frame from host to board."""
    body = (BOARD_MAC + HOST_MAC + struct.pack(">H", kind) + content).ljust(LEAST_BYTES, b"\0")
    return PREAMBLE + body + struct.pack("<I", zlib.crc32(body))


def datagram(payload: bytes) -> bytes:
    """Return the frame of a datagram from host to board. UDP's own checksum is not used."""
    content = struct.pack(">HHHH", ETHERBONE_PORT, ETHERBONE_PORT, 8 + len(payload), 0) + payload
    head = bytearray(struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(content), 0, 0, 64, UDP, 0, HOST_IP, BOARD_IP))
    total = sum(struct.unpack(">10H", head))
    head[10:12] = struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF)
    return frame(IPV4, bytes(head) + content)


def arp_reply() -> bytes:
    """Return the frame that tells the board the host's hardware address."""
    return frame(ARP, struct.pack(">HHBBH6s4s6s4s", 1, IPV4, 6, 4, REPLY, HOST_MAC, HOST_IP, BOARD_MAC, BOARD_IP))


def body_of(found: bytes) -> bytes:
    """Return the body of a frame from the board; raise AssertionError if it is not whole or not the board's."""
    assert found.startswith(PREAMBLE), found[:8].hex()
    body, check = found[len(PREAMBLE):-4], found[-4:]
    assert struct.pack("<I", zlib.crc32(body)) == check and len(body) >= LEAST_BYTES
    assert body[6:12] == BOARD_MAC
    return body


def asks_for_host(body: bytes) -> bool:
    """Return whether the board asks for the host's hardware address."""
    return body[12:14] == struct.pack(">H", ARP)


def payload_of(body: bytes) -> bytes:
    """Return what a datagram from the board to the host holds."""
    assert body[:6] == HOST_MAC and body[26:34] == BOARD_IP + HOST_IP
    length, = struct.unpack_from(">H", body, HEADS - 4)
    return body[HEADS:HEADS - 8 + length]
