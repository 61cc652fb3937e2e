"""A tokenizer's plugin without a run: its library, called through the C tables of sdk/include/mortise."""

import ctypes as c
import pathlib


class Str(c.Structure):
    _fields_ = [("ptr", c.c_void_p), ("len", c.c_size_t)]

    @property
    def text(self):
        return c.string_at(self.ptr, self.len).decode()


class Value(c.Structure):
    _fields_ = [("tag", c.c_uint32), ("count", c.c_uint32), ("text", Str)]


MORTISE_TEXT, NOT_FOUND = 6, 8
VOID, STATUS = c.c_void_p, c.c_int32
GET_INTERFACE = c.CFUNCTYPE(VOID, VOID, Str)
FAIL = c.CFUNCTYPE(STATUS, VOID, STATUS, Str)
GET = c.CFUNCTYPE(STATUS, VOID, Str, c.POINTER(Value))
BLAME = c.CFUNCTYPE(STATUS, VOID, Str, Str, Str)
SIZE = c.CFUNCTYPE(STATUS, VOID, c.POINTER(c.c_int64))
ENCODE = c.CFUNCTYPE(STATUS, VOID, Str, VOID, c.c_size_t, c.POINTER(c.c_size_t))
DECODE = c.CFUNCTYPE(STATUS, VOID, VOID, c.c_size_t, VOID, c.c_size_t, c.POINTER(c.c_size_t))


class Host(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("major", c.c_uint16), ("minor", c.c_uint16),
                ("get_interface", GET_INTERFACE), ("fail", FAIL)]


class Config(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("get", GET), ("blame", BLAME)]


class Descriptor(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("major", c.c_uint16), ("minor", c.c_uint16), ("manifest", Str),
                ("create", c.CFUNCTYPE(STATUS, VOID, c.POINTER(VOID))),
                ("attachments", c.CFUNCTYPE(STATUS, VOID, c.POINTER(VOID), c.POINTER(c.c_uint32),
                                            c.POINTER(c.c_uint32))),
                ("destroy", c.CFUNCTYPE(None, VOID))]


class Attachment(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("flags", c.c_uint32), ("point", Str), ("object", VOID)]


class Table(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("reserved", c.c_uint32), ("size", SIZE), ("encode", ENCODE),
                ("decode", DECODE)]


class Tokenizer:
    """`library`: the plugin's; `path`: its key."""

    def __init__(self, library, path):
        self.said = ""
        self.path = str(pathlib.Path(path)).encode()
        self.config = Config(c.sizeof(Config), GET(self._get), BLAME(self._blame))
        self.host = Host(c.sizeof(Host), 0, 1, GET_INTERFACE(self._interface), FAIL(self._fail))
        entry = c.CDLL(str(library)).mortise_plugin_v0
        entry.restype = c.POINTER(Descriptor)
        self.plugin = entry().contents
        self.host.major, self.host.minor = self.plugin.major, self.plugin.minor
        self.self = VOID()
        self._check(self.plugin.create(c.addressof(self.host), c.byref(self.self)))
        at, n, stride = VOID(), c.c_uint32(), c.c_uint32()
        self._check(self.plugin.attachments(self.self, c.byref(at), c.byref(n), c.byref(stride)))
        self.table = Table.from_address(Attachment.from_address(at.value).object)

    def close(self):
        self.plugin.destroy(self.self)

    def _interface(self, _, name):
        return c.addressof(self.config) if name.text == "mortise.config/0" else None

    def _fail(self, _, status, text):
        self.said = text.text
        return status

    def _get(self, _, key, value):
        value.contents.tag = MORTISE_TEXT
        value.contents.text = Str(c.cast(c.c_char_p(self.path), VOID), len(self.path))
        return 0

    def _blame(self, _, key, why, fix):
        self.said = why.text
        return 3

    def _check(self, status):
        if status:
            raise RuntimeError(f"{status}: {self.said}")

    def encode(self, data):
        """The ids of some bytes, as an array of ctypes and how many it holds."""
        ids, needed = (c.c_int64 * (len(data) + 16))(), c.c_size_t()
        text = Str(c.cast(c.c_char_p(data), VOID), len(data))
        self._check(self.table.encode(self.self, text, ids, len(ids), c.byref(needed)))
        if needed.value > len(ids):
            ids = (c.c_int64 * needed.value)()
            self._check(self.table.encode(self.self, text, ids, len(ids), c.byref(needed)))
        return ids, needed.value

    def decode(self, ids, n):
        needed, room = c.c_size_t(), 16 * n + 64
        text = c.create_string_buffer(room)
        self._check(self.table.decode(self.self, ids, n, text, room, c.byref(needed)))
        if needed.value > room:
            text = c.create_string_buffer(needed.value)
            self._check(self.table.decode(self.self, ids, n, text, needed.value, c.byref(needed)))
        return text.raw[:needed.value].decode()
