"""Any Kafka request in any version over one socket, by the table of messages that the project's own codec is made from.

`Connection.call("JoinGroup", 5, GroupId="g", ...)` returns the response as a dict. Fields left out have their defaults;
a field that the version lacks is left off. This codec shares no code with the one under test.
"""

import pathlib
import re
import socket
import struct

TABLE = pathlib.Path(__file__).resolve().parents[2] / "xtask" / "kafka-messages.txt"
NUMBERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}


class Versions:
    def __init__(self, text):
        text = (text or "none").strip()
        low, dash, high = text.rstrip("+").partition("-")
        self.low = None if text == "none" else int(low)
        self.high = 1 << 15 if text.endswith("+") else int(high or low) if self.low is not None else None

    def __contains__(self, version):
        return self.low is not None and self.low <= version <= self.high


class Field:
    def __init__(self, line):
        self.name, _, rest = line.strip().partition(":")
        parts = re.findall(r'(?:"[^"]*"|[^,])+', rest)
        self.type = parts[0].strip()
        self.versions = Versions(parts[1])
        self.nullable, self.tag, self.tagged, self.default = Versions(None), None, Versions(None), None
        self.fields = []
        for part in map(str.strip, parts[2:]):
            word, _, value = part.partition(" ")
            if word == "nullable":
                self.nullable = Versions(value)
            elif word == "default":
                self.default = value.strip('"')
            elif word == "tag":
                tag, _, versions = value.partition(" in ")
                self.tag, self.tagged = int(tag), Versions(versions)


class Schema:
    def __init__(self, head, lines):
        self.name = head.split(",")[0]
        self.key = int(m.group(1)) if (m := re.search(r"\bkey (\d+)", head)) else None
        self.versions = Versions(re.search(r"\bversions ([\d+-]+)", head).group(1))
        self.flexible = Versions(re.search(r"\bflexible ([\w+]+)", head).group(1))
        self.fields, self.shapes, stack = [], {}, []
        for line in lines:
            depth = (len(line) - len(line.lstrip())) // 2
            del stack[depth - 1:]
            into = stack[-1] if stack else self.fields
            if line.strip().startswith("struct "):
                shape = self.shapes[line.strip()[7:].partition(":")[0]] = []
                stack.append(shape)
                continue
            field = Field(line)
            into.append(field)
            stack.append(field.fields)

    def fields_of(self, field):
        return field.fields or self.shapes[field.type.removeprefix("[]")]


def schemas():
    found, head, lines = {}, None, []
    for line in TABLE.read_text().splitlines() + ["## end"]:
        if line.startswith("## "):
            if head:
                schema = Schema(head, lines)
                found[schema.name] = schema
            head, lines = line[3:], []
        elif line.startswith("  ") and head:
            lines.append(line)
    return found


SCHEMAS = schemas() if TABLE.exists() else {}


class Out:
    def __init__(self):
        self.data = bytearray()

    def number(self, kind, value):
        self.data += struct.pack(">" + NUMBERS[kind], value)

    def varint(self, value):
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def length(self, flexible, kind, count):
        if flexible:
            self.varint(0 if count is None else count + 1)
        else:
            self.number(kind, -1 if count is None else count)

    def fields(self, schema, fields, version, values):
        flexible = version in schema.flexible
        tagged = []
        for field in fields:
            if version not in field.versions:
                continue
            value = values.get(field.name, default(field, version))
            if version in field.tagged:
                if value != default(field, version):
                    inner = Out()
                    inner.value(schema, field, field.type, version, value, flexible)
                    tagged.append((field.tag, inner.data))
                continue
            self.value(schema, field, field.type, version, value, flexible)
        if flexible:
            self.varint(len(tagged))
            for tag, data in sorted(tagged):
                self.varint(tag)
                self.varint(len(data))
                self.data += data

    def value(self, schema, field, kind, version, value, flexible):
        if kind.startswith("[]"):
            self.length(flexible, "int32", None if value is None else len(value))
            for item in value or ():
                self.value(schema, field, kind[2:], version, item, flexible)
        elif kind in NUMBERS:
            self.number(kind, value)
        elif kind == "bool":
            self.data.append(bool(value))
        elif kind == "uuid":
            self.data += value
        elif kind in ("string", "bytes", "records"):
            value = value.encode() if isinstance(value, str) else value
            self.length(flexible, "int16" if kind == "string" else "int32", None if value is None else len(value))
            self.data += value or b""
        else:
            if version in field.nullable and not field.type.startswith("[]"):
                self.number("int8", -1 if value is None else 1)
            if value is not None:
                self.fields(schema, schema.fields_of(field), version, value)


class In:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        part = self.data[self.at:self.at + count]
        assert len(part) == count, "the answer is shorter than its fields"
        self.at += count
        return part

    def number(self, kind):
        return struct.unpack(">" + NUMBERS[kind], self.take(struct.calcsize(">" + NUMBERS[kind])))[0]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def length(self, flexible, kind):
        count = self.varint() - 1 if flexible else self.number(kind)
        return None if count < 0 else count

    def fields(self, schema, fields, version):
        flexible = version in schema.flexible
        values = {}
        for field in fields:
            if version in field.tagged:
                values[field.name] = default(field, version)
            elif version in field.versions:
                values[field.name] = self.value(schema, field, field.type, version, flexible)
        if flexible:
            for _ in range(self.varint()):
                tag, size = self.varint(), self.varint()
                inner = In(self.take(size))
                for field in fields:
                    if field.tag == tag and version in field.tagged:
                        values[field.name] = inner.value(schema, field, field.type, version, flexible)
        return values

    def value(self, schema, field, kind, version, flexible):
        if kind.startswith("[]"):
            count = self.length(flexible, "int32")
            return None if count is None else [self.value(schema, field, kind[2:], version, flexible) for _ in range(count)]
        if kind in NUMBERS:
            return self.number(kind)
        if kind == "bool":
            return self.take(1)[0] != 0
        if kind == "uuid":
            return bytes(self.take(16))
        if kind in ("string", "bytes", "records"):
            count = self.length(flexible, "int16" if kind == "string" else "int32")
            part = None if count is None else bytes(self.take(count))
            return part.decode() if kind == "string" and part is not None else part
        if version in field.nullable and not field.type.startswith("[]") and self.number("int8") < 0:
            return None
        return self.fields(schema, schema.fields_of(field), version)


def default(field, version):
    text = field.default
    if field.type.startswith("[]"):
        return None if text == "null" else []
    if text == "null":
        return None
    if field.type in NUMBERS:
        return float(text or 0) if field.type == "float64" else int(text or "0", 0)
    if field.type == "bool":
        return text == "true"
    if field.type == "uuid":
        return bytes(16)
    if field.type == "string":
        return text or ""
    if field.type in ("bytes", "records"):
        return b""
    return {}


def versions(api):
    found = SCHEMAS[api + "Request"].versions
    return range(found.low, found.high + 1)


class Connection:
    def __init__(self, port, client_id="wire", timeout_s=60):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.client_id, self.correlation = client_id, 0

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, api, version, **values):
        schema = SCHEMAS[api + "Request"]
        self.correlation += 1
        out = Out()
        for kind, value in (("int16", schema.key), ("int16", version), ("int32", self.correlation)):
            out.number(kind, value)
        out.length(False, "int16", len(self.client_id))
        out.data += self.client_id.encode()
        if version in schema.flexible:
            out.varint(0)
        out.fields(schema, schema.fields, version, values)
        self.socket.sendall(struct.pack(">i", len(out.data)) + out.data)

    def receive(self, api, version):
        schema = SCHEMAS[api + "Response"]
        size = struct.unpack(">i", self._read(4))[0]
        answer = In(self._read(size))
        assert answer.number("int32") == self.correlation
        if version in schema.flexible and api != "ApiVersions":
            answer.varint()
        values = answer.fields(schema, schema.fields, version)
        assert answer.at == size, "the answer is longer than its fields"
        return values

    def call(self, api, version, **values):
        self.send(api, version, **values)
        return self.receive(api, version)

    def _read(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionError("the server closed the connection")
            data += part
        return data
