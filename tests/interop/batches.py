"""Record batches (magic 2) written byte by byte, so that a test can damage them."""

import struct
import time

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def varint(value):
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def record_parts(value_length, offset_delta=0):
    """What stands before and after a value of that length in a record without key and headers."""
    head = b"\0" + varint(0) + varint(offset_delta) + varint(-1) + varint(value_length)
    return varint(len(head) + value_length + 1) + head, varint(0)


def record(value, offset_delta=0):
    before, after = record_parts(len(value), offset_delta)
    return before + value + after


def batch(records, count, attributes=0, magic=2, crc=None, last_offset_delta=None):
    """`records` are the bytes after the header, compressed or not."""
    now = int(time.time() * 1000)
    last = count - 1 if last_offset_delta is None else last_offset_delta
    covered = struct.pack(">hiqqqhii", attributes, last, now, now, -1, -1, -1, count) + records
    body = struct.pack(">ibI", -1, magic, crc32c(covered) if crc is None else crc) + covered
    return struct.pack(">qi", 0, len(body)) + body


def bomb(compressor, value_length):
    """One record of zeros that the compressor makes tiny, as a stream: nobody here holds it whole."""
    before, after = record_parts(value_length)
    chunk = bytes(1 << 20)
    out = [compressor.compress(before)]
    for _ in range(value_length >> 20):
        out.append(compressor.compress(chunk))
    return b"".join(out + [compressor.compress(after), compressor.flush()])
