"""Plugins that are each bad in a way of their own: written, compiled, and with what the program must say of them.

    python3 tests/hostile_plugins/generate.py OUT [NAME…]     # OUT/NAME/FAMILY.NAME.so and .toml

One small C file and one call of the compiler each, no LibTorch. What throws is C++.
"""
import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
import struct
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SEGV, ABRT, FPE, BUS, ILL = -11, -6, -8, -7, -4
TIMEOUT = ("--set", "run.call_timeout=2 s")


@dataclasses.dataclass
class Case:
    name: str
    place: str = ""  # what the error must name beside the plugin
    family: str = "bad"
    points: str = 'listens = [{ point = "run.begin" }]'
    attach: str = '{ .struct_size = sizeof(mortise_attachment), .point = { "run.begin", 9 }, .listen = listen }'
    functions: str = "static mortise_status listen(void *s, const mortise_event *e) { (void)s; (void)e; return 0; }"
    create: str = ""
    attachments: str = ""
    destroy: str = ""
    descriptor: str = ""
    before: str = ""  # before everything, at file scope
    raw: str = ""  # the whole source instead
    cxx: bool = False
    link: tuple = ()
    damage: object = None  # of the finished library's bytes
    code: int = 71
    args: tuple = ()
    quick: bool = False  # also without MORTISE_HOSTILE=all

    @property
    def id(self):
        return f"{self.family}.{self.name}"


PRELUDE = """\
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
%s
#include "mortise/mortise.h"
#include "mortise/plugin.h"
MORTISE_EMBED_MANIFEST
static mortise_host *host;
static int instance;
static volatile int zero;
static inline void hang(void) { for (;;) pause(); }
static inline void segv(void) { *(volatile int *)(uintptr_t)zero = 1; }
static inline void fpe(void) { zero = 100 / zero; }
static inline void bus(void) { \
*(volatile int *)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_create("b", 0), 0) = 1; }
__attribute__((noinline)) static int deep(volatile char *outer) {
  volatile char room[4096];
  room[0] = outer ? outer[0] : 1;
  return (zero ? 0 : deep(room)) + room[0];
}
static inline void overflow(void) { deep(NULL); }
static inline mortise_status say(mortise_status code, const char *text, size_t n) {
  mortise_str s = { text, n };
  return host->fail(host, code, s);
}
#define TABLE(type, id) ((const type *)mortise_get(host, id))
"""

BODY = """\
%(functions)s
static mortise_status create(mortise_host *h, void **self) { host = h; *self = &instance; \
%(create)s return MORTISE_OK; }
static const mortise_attachment all[] = { %(attach)s };
static mortise_status attachments(void *self, const mortise_attachment **list, uint32_t *n, uint32_t *stride) {
  (void)self; *list = all; *n = sizeof all / sizeof *all; *stride = sizeof *all; %(attachments)s return MORTISE_OK;
}
static void destroy(void *self) { (void)self; %(destroy)s }
const mortise_plugin *mortise_plugin_v0(void) {
  static mortise_plugin plugin;
  plugin.struct_size = sizeof plugin;
  plugin.abi_major = MORTISE_ABI_MAJOR;
  plugin.abi_minor = MORTISE_ABI_MINOR;
  plugin.manifest.ptr = mortise_manifest_begin;
  plugin.manifest.len = MORTISE_MANIFEST_BYTES;
  plugin.create = create;
  plugin.attachments = attachments;
  plugin.destroy = destroy;
  %(descriptor)s
  return &plugin;
}
"""

CASES = []


def case(name, place="", **more):
    CASES.append(Case(name, place, **more))


# ---- what a function may do: (name, statement, exit, arguments) ----

DEEDS = {
    "segv": ("segv();", SEGV, ()),
    "abort": ("abort();", ABRT, ()),
    "fpe": ("fpe();", FPE, ()),
    "bus": ("bus();", BUS, ()),
    "ill": ("__builtin_trap();", ILL, ()),
    "overflow": ("overflow();", SEGV, ()),
    "exit": ("exit(0);", 71, ()),
    "exit3": ("exit(3);", 71, ()),
    "quick_exit": ("quick_exit(0);", 71, ()),
    "hang": ("hang();", 71, TIMEOUT),
    "throw": ("throw 42;", 71, ()),
    "throw_std": ('throw std::runtime_error("boom");', 71, ()),
    "internal": ("return MORTISE_E_INTERNAL;", 71, ()),
    "unknown_status": ("return 12345;", 71, ()),
    "negative_status": ("return -1;", 71, ()),
    "wild_text": ('return say(MORTISE_E_PLUGIN, "x", (size_t)-1);', 71, ()),
    "null_text": ("return say(MORTISE_E_PLUGIN, NULL, 5);", 71, ()),
    "internal_text": ('return say(MORTISE_E_INTERNAL, "it was not me", 13);', 71, ()),
}


def deed(name, kind, place, **more):
    statement, code, args = DEEDS[kind]
    return {"name": f"{name}_{kind}", "place": place, "code": code, "args": args + more.pop("args", ()),
            "cxx": "throw " in statement, **more}, statement


def at_create(kind, **more):
    fields, statement = deed("create", kind, "create", **more)
    case(create=statement, **fields)


def at_attachments(kind, **more):
    fields, statement = deed("attachments", kind, "attachments", **more)
    case(attachments=statement, **fields)


def at_destroy(kind, **more):
    fields, statement = deed("destroy", kind, "destroy", **more)
    case(destroy=statement, **fields)


def listener(point, kind, statement=None, name=None, extra="", **more):
    short = point.replace(".", "_")
    if statement is None:
        fields, statement = deed(short, kind, point, **more)
    else:
        fields = {"name": f"{short}_{kind}", "place": point, **more}
    case(points=f'listens = [{{ point = "{point}"{extra} }}]',
         attach='{ .struct_size = sizeof(mortise_attachment), '
                f'.point = {{ "{point}", {len(point)} }}, .listen = listen }}',
         functions=f"static mortise_status listen(void *s, const mortise_event *e) {{ (void)s; (void)e; "
                   f"{statement} return MORTISE_OK; }}", **fields)


def wrapper(point, kind, statement=None, **more):
    if statement is None:
        fields, statement = deed(f"wrap_{point}", kind, point, **more)
    else:
        fields = {"name": f"wrap_{point}_{kind}", "place": point, **more}
    case(points=f'wraps = [{{ point = "{point}", band = "adapt" }}]',
         attach='{ .struct_size = sizeof(mortise_attachment), '
                f'.point = {{ "{point}", {len(point)} }}, .wrap = wrap }}',
         functions=f"static mortise_status wrap(void *s, mortise_call *c, mortise_next *next) {{ (void)s; {statement} "
                   "return TABLE(mortise_call_api, \"mortise.call/0\")->next(host, next, c); }", **fields)


def provider(slot, name, functions, object_type, members, place, **more):
    family = more.pop("family", slot.split(".")[0])
    flags = more.pop("flags", "0")
    size = more.pop("size", f"sizeof({object_type})")
    case(name, place, family=family, points=f'provides = ["{slot}"]',
         functions=f"{functions}\nstatic const {object_type} object = {{ {size}, {members} }};",
         attach=f'{{ .struct_size = sizeof(mortise_attachment), .flags = {flags}, '
                f'.point = {{ "{slot}", {len(slot)} }}, .object = &object }}', **more)


# ---- the library's bytes, its exports, its constructors ----

def put(offset, fmt, *values):
    def change(data):
        out = bytearray(data)
        struct.pack_into(fmt, out, offset, *values)
        return bytes(out)
    return change


def scramble_dynamic(data):
    out = bytearray(data)
    phoff, = struct.unpack_from("<Q", out, 32)
    count, = struct.unpack_from("<H", out, 56)
    for i in range(count):
        at = phoff + 56 * i
        kind, = struct.unpack_from("<I", out, at)
        if kind == 2:  # PT_DYNAMIC
            offset, = struct.unpack_from("<Q", out, at + 8)
            for k in range(16):
                struct.pack_into("<Q", out, offset + 16 * k + 8, 0x7fffffffffff0000 + k)
    return bytes(out)


case("elf_cut", damage=lambda data: data[:1000], quick=True)
case("elf_half", damage=lambda data: data[: len(data) // 2])
case("elf_empty", damage=lambda data: b"")
case("elf_script", damage=lambda data: b"#!/bin/sh\nexit 0\n")
case("elf_zeros", damage=lambda data: bytes(len(data)))
case("elf_machine", damage=put(18, "<H", 3))
case("elf_class", damage=put(4, "<B", 1))
case("elf_program", damage=put(16, "<H", 2))
case("elf_headers", damage=put(32, "<Q", 1 << 62))
case("elf_many_headers", damage=put(56, "<H", 65535))
case("elf_dynamic", damage=scramble_dynamic)
case("elf_fifo", damage="fifo")
case("elf_folder", damage="folder")
case("export_none", raw="int nothing_of_use(void); int nothing_of_use(void) { return 0; }",
     link=("-fvisibility=default",))
case("export_more",
     functions="MORTISE_EXPORT int further(void); MORTISE_EXPORT int further(void) { return 0; }\n"
     + Case("x").functions, link=("no map",))
case("import_torch", before='extern int called(void) __asm__("_ZN2at3addERKNS_6TensorES2_RKN3c106ScalarE");',
     create="if (called()) return 1;", place="at::add")
case("import_nobody", before="extern int no_such_function(void);", create="if (no_such_function()) return 1;",
     place="no_such_function")
for kind in ("segv", "abort", "exit", "hang"):
    case(f"constructor_{kind}", before="static void at_load(void) __attribute__((constructor));",
         functions=Case("x").functions + f"\nstatic void at_load(void) {{ {DEEDS[kind][0]} }}", quick=kind == "exit")
# In the probe all is well: only where the program itself loads it.
for kind in ("segv", "exit"):
    case(f"constructor_late_{kind}", "its constructors", code=DEEDS[kind][1],
         before="static void at_load(void) __attribute__((constructor));", functions=Case("x").functions + """
static void at_load(void) {
  char name[4096] = {0};
  if (readlink("/proc/self/exe", name, sizeof name - 1) > 0 && strstr(name, "mortise-probe")) return;
  %s
}""" % DEEDS[kind][0])

# ---- the descriptor ----

case("descriptor_null", descriptor="return NULL;")
case("descriptor_wild", descriptor="return (const mortise_plugin *)16;")
case("descriptor_size", descriptor="plugin.struct_size = 0;", quick=True)
case("descriptor_no_create", descriptor="plugin.create = NULL;")
case("descriptor_no_attachments", descriptor="plugin.attachments = NULL;")
case("descriptor_no_destroy", descriptor="plugin.destroy = NULL;")
case("descriptor_no_manifest", descriptor="plugin.manifest.ptr = NULL;")
case("descriptor_long_manifest", descriptor="plugin.manifest.len = (size_t)1 << 60;")
case("descriptor_other_manifest", descriptor='plugin.manifest.ptr = "[plugin]"; plugin.manifest.len = 8;')
case("descriptor_newer", descriptor="plugin.abi_minor = 99;")
case("descriptor_other_major", descriptor="plugin.abi_major = 7;")
case("descriptor_crash", descriptor="segv();")
case("descriptor_exit", descriptor="exit(0);")

# ---- create, attachments, destroy ----

for kind in ("segv", "overflow", "exit", "quick_exit", "hang", "throw", "throw_std", "internal", "unknown_status",
             "wild_text", "null_text"):
    at_create(kind, quick=kind in ("segv", "exit", "throw", "internal", "wild_text"))
for kind in ("abort", "exit3", "throw", "negative_status"):
    at_attachments(kind)
for kind in ("segv", "exit", "throw", "hang"):
    at_destroy(kind, quick=kind in ("throw", "exit"))
for name, statement in {
        "null": "*list = NULL; *n = 3;", "many": "*n = 1u << 31;", "stride_huge": "*stride = 1u << 30; *n = 2;",
        "stride_none": "*stride = 0; *n = 2;",
        "stride_odd": "*stride = sizeof *all + 1; *n = 2;"}.items():
    case(f"attachments_{name}", "attachments", attachments=statement, quick=name in ("null", "many", "stride_huge"))
ATTACHED = '.struct_size = sizeof(mortise_attachment), .point = { "run.begin", 9 }'
case("attachment_size", "attachments", attach='{ .struct_size = 0, .point = { "run.begin", 9 }, .listen = listen }',
     quick=True)
case("attachment_no_point", "attachments",
     attach="{ .struct_size = sizeof(mortise_attachment), .point = { NULL, 9 }, .listen = listen }", quick=True)
case("attachment_long_point", "attachments",
     attach='{ .struct_size = sizeof(mortise_attachment), '
            '.point = { "run.begin", (size_t)1 << 50 }, .listen = listen }')
case("attachment_no_way", "attachments", attach=f"{{ {ATTACHED} }}", functions="")
case("attachment_two_ways", "attachments", attach=f"{{ {ATTACHED}, .object = &instance, .listen = listen }}")
case("attachment_not_in_toml", "step.end",
     attach='{ .struct_size = sizeof(mortise_attachment), .point = { "step.end", 8 }, .listen = listen }')
case("attachment_only_in_toml", "run.begin", attachments="*n = 0;")

# ---- listeners and wrappers ----

for point, kind in [("run.begin", "segv"), ("run.begin", "throw"), ("step.begin", "fpe"),
                    ("step.begin", "internal_text"), ("step.window", "exit"), ("step.verdict", "ill"),
                    ("grad.transform", "hang"), ("step.commit", "abort"), ("step.end", "throw_std"), ("record", "bus"),
                    ("record", "overflow"), ("run.end", "exit"),
                    ("run.end", "throw"), ("params.declared", "throw"), ("params.declared", "segv")]:
    listener(point, kind, extra=', writes = ["trainable"]' if point == "params.declared" else "",
             quick=(point, kind) in {("step.begin", "fpe"), ("record", "overflow"), ("grad.transform", "hang"),
                                     ("params.declared", "throw")})
for point, kind in [("load", "throw"), ("load", "exit"), ("batch", "segv"), ("step", "fpe"), ("gradients", "hang"),
                    ("micro", "internal"), ("forward", "throw_std"), ("block", "overflow"),
                    ("block", "wild_text"), ("backward", "abort")]:
    wrapper(point, kind,
            quick=(point, kind) in {("block", "overflow"), ("micro", "internal"), ("forward", "throw_std")})
wrapper("forward", "null_next", "return TABLE(mortise_call_api, \"mortise.call/0\")->next(host, NULL, c); (void)next;")
wrapper("forward", "no_size", "c->struct_size = 0;")
wrapper("forward", "null_term",
        "if (next) return TABLE(mortise_loop_api, \"mortise.loop/0\")->term(host, "
        "(mortise_str){ NULL, 4 }, NULL, (mortise_str){ 0, 0 }, 0.0);")

for point in ("step", "gradients"):
    wrapper(point, "twice", "{ mortise_status first = "
                            "TABLE(mortise_call_api, \"mortise.call/0\")->next(host, next, c); "
                            "if (first) return first; }", quick=point == "gradients")
for point in ("gradients", "backward"):
    wrapper(point, "skip", "return MORTISE_OK; (void)next; (void)c;", quick=point == "backward")
ROUNDS_UP = "__builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x4000);"  # x86-64
case("create_rounds", "create", create=ROUNDS_UP)
listener("step.begin", "rounds", ROUNDS_UP, quick=True)

# ---- what the host's functions are called with ----

for name, statement in {
        "empty_nowhere": "int64_t one = 1; return TABLE(mortise_tensor_api, \"mortise.tensor/0\")->empty(host, "
                         "MORTISE_F32, &one, 1, 1, NULL);",
        "empty_rank": "int64_t one = 1; mortise_tensor *t; return TABLE(mortise_tensor_api, "
                      "\"mortise.tensor/0\")->empty(host, MORTISE_F32, &one, (uint32_t)-1, 1, &t);",
        "empty_negative": "int64_t size = -4; mortise_tensor *t; return TABLE(mortise_tensor_api, "
                          "\"mortise.tensor/0\")->empty(host, MORTISE_F32, &size, 1, 1, &t);",
        "empty_no_sizes": "mortise_tensor *t; return TABLE(mortise_tensor_api, \"mortise.tensor/0\")->empty(host, "
                          "MORTISE_F32, NULL, 2, 1, &t);",
        "empty_dtype": "int64_t one = 1; mortise_tensor *t; return TABLE(mortise_tensor_api, "
                       "\"mortise.tensor/0\")->empty(host, 99, &one, 1, 1, &t);",
        "info_of_nothing": "return TABLE(mortise_tensor_api, \"mortise.tensor/0\")->info(host, NULL, NULL);",
        "no_host": "int64_t one = 1; mortise_tensor *t; return TABLE(mortise_tensor_api, "
                   "\"mortise.tensor/0\")->empty(NULL, MORTISE_F32, &one, 1, 1, &t);",
        "interface_null": "mortise_str none = { NULL, 7 }; if (!host->get_interface(host, none) "
                          "&& !host->get_interface(NULL, none)) return say(MORTISE_E_PLUGIN, \"none\", 4);",
        "config_null": "mortise_str key = { NULL, 7 }; mortise_value v; return TABLE(mortise_config_api, "
                       "\"mortise.config/0\")->get(host, key, &v);",
        "config_nowhere": "mortise_str key = { \"x\", 1 }; return TABLE(mortise_config_api, "
                          "\"mortise.config/0\")->get(host, key, NULL);",
        "log_wild": "mortise_str line = { \"x\", (size_t)-1 }; TABLE(mortise_log_api, \"mortise.log/0\")"
                    "->write(host, 0, line); return say(MORTISE_E_PLUGIN, \"logged\", 6);",
        "batch_null": "mortise_tensor *t; return TABLE(mortise_batch_api, \"mortise.batch/0\")->get(host, NULL, "
                      "(mortise_str){ \"x\", 1 }, &t);",
        "put_null": "return TABLE(mortise_batch_api, \"mortise.batch/0\")->put(host, NULL, 0, 0, NULL, 5);",
        "find_null": "mortise_param *p; return TABLE(mortise_params_api, \"mortise.params/0\")->find(host, "
                     "(mortise_str){ NULL, 3 }, &p);",
        "keep_null": "return TABLE(mortise_state_api, \"mortise.state/0\")->keep(host, NULL);",
        "keep_empty": "static mortise_blob blob; return TABLE(mortise_state_api, \"mortise.state/0\")->keep(host, "
                      "&blob);"}.items():
    case(f"host_{name}", "create", create=statement, quick=name in ("empty_nowhere", "empty_rank", "interface_null"))
case("host_refuse_null",
     create="return TABLE(mortise_config_api, \"mortise.config/0\")->refuse(host, (mortise_str){ NULL, 1 }, "
            "(mortise_str){ NULL, 2 }, (mortise_str){ NULL, 3 }, (mortise_str){ NULL, 4 }, (mortise_str){ NULL, 5 });",
     code=64)
BLOB = ("static mortise_status load(void *s, uint32_t v, mortise_str t) { (void)s; (void)v; (void)t; return 0; }\n"
        "static mortise_blob blob = { sizeof blob, 1, { \"b\", 1 }, save, load };\n" + Case("x").functions)
KEEP = "return TABLE(mortise_state_api, \"mortise.state/0\")->keep(host, &blob);"
for name, statement, code in [("null", "return k->write(k->user, NULL, 5);", 71),
                              ("wild", "return k->write(k->user, \"x\", (uint64_t)1 << 60);", 71),
                              ("exit", "exit(0);", 71), ("segv", "segv();", SEGV)]:
    case(f"state_{name}", "save",
         functions="static mortise_status save(void *s, const mortise_sink *k) { "
                   "(void)s; (void)k; %s return 0; }\n" % statement + BLOB, create=KEEP, code=code)

# ---- providers ----

FACTOR = "static mortise_status factor(void *s, double at, double *m) {{ (void)s; (void)at; (void)m; {} return 0; }}"
for name, statement, code, args in [("nan", "*m = 0.0 / 0.0;", 71, ()), ("fifty", "*m = 50;", 71, ()),
                                    ("negative", "*m = -1;", 71, ()), ("infinite", "*m = 1.0 / 0.0;", 71, ()),
                                    ("segv", "segv();", SEGV, ()),
                                    ("hang", "hang();", 71, TIMEOUT), ("exit", "exit(0);", 71, ()),
                                    ("internal", "return MORTISE_E_INTERNAL;", 71, ()), ("throw", "throw 1;", 71, ())]:
    provider("schedule", f"factor_{name}", FACTOR.format(statement), "mortise_schedule", "0, factor",
             "" if name in ("nan", "fifty", "negative", "infinite") else "factor", code=code, args=args,
             cxx=name == "throw",
             quick=name in ("nan", "fifty"))
for name, size in [("size_0", "0"), ("size_huge", "0x7fffffff")]:
    provider("schedule", f"object_{name}", FACTOR.format(""), "mortise_schedule", "0, factor", "schedule", size=size,
             quick=name == "size_0")
provider("schedule", "object_empty", "", "mortise_schedule", "0, NULL", "factor")

STATES = ("static mortise_status states(void *s, const mortise_param_info *p, mortise_state_spec *l, uint32_t *n) {{ "
          "(void)s; (void)p; (void)l; {} return 0; }}\n"
          "static mortise_status step(void *s, const mortise_slice *l, uint32_t n, const mortise_ledger *g) {{ "
          "(void)s; (void)l; (void)n; (void)g; {} return 0; }}")
STATE = "l[0] = (mortise_state_spec){{ {}, {{ \"{}\", {} }}, {}, 0, 0 }}; *n = 1;"
MANY = ("for (int i = 0; i < {0}; ++i) "
        "l[i] = (mortise_state_spec){{ {1}, {{ \"same\", 4 }}, MORTISE_F32, 0, 0 }}; *n = {0};")
for name, statement, place in [
        ("nine", MANY.format(9, '{ "m", 1 }'), "9 states"), ("wild", "*n = (uint32_t)-1;", "states"),
        ("twice", MANY.format(2, '{ "m", 1 }'), "twice"), ("nameless", MANY.format(1, "{ NULL, 0 }"), "not at all"),
        ("relation", STATE.format('{ "m", 1 }', "diagonal", 8, 1), "diagonal"),
        ("dtype", STATE.format('{ "m", 1 }', "same", 4, 99), "element type"),
        ("odd_name", STATE.format('{ "m\\xff", 2 }', "same", 4, 1), "a line cannot show"),
        ("fill", "l[0] = (mortise_state_spec){ { \"m\", 1 }, { \"same\", 4 }, MORTISE_I64, 0, 0.5 }; *n = 1;", "0.5"),
        ("null_name", STATE.format("{ NULL, 9 }", "same", 4, 1), "NULL")]:
    provider("optimizer", name, STATES.format(statement, ""), "mortise_optimizer", "0, states, step", place,
             quick=name in ("nine", "twice"))
for name, statement, code in [("segv", "segv();", SEGV), ("throw", "throw 1;", 71), ("exit", "exit(0);", 71),
                              ("status", "return 99;", 71)]:
    provider("optimizer", f"step_{name}", STATES.format(MANY.format(1, '{ "m", 1 }'), statement), "mortise_optimizer",
             "0, states, step", "step", code=code, cxx="throw" in statement)

RESIZE = """const mortise_ops_api *o = TABLE(mortise_ops_api, "mortise.ops/0"); mortise_op *op; int64_t size = 5;
  mortise_value v[] = {{ {{ MORTISE_TENSOR, 0, {{ .t = l[0].states[0] }} }},
                        {{ MORTISE_INTS, 1, {{ .is = &size }} }}, {{ 0 }} }}, r;
  mortise_str name = {{ "aten::resize_", 13 }}; uint32_t m; static int steps;
  if (steps++ >= {0} && (o->find(host, name, &op) || o->call(host, op, v, 3, &r, 1, &m))) return 1;"""
for after in (0, 1):
    provider("optimizer", f"resizes_{after}", STATES.format(MANY.format(1, '{ "m", 1 }'), RESIZE.format(after)),
             "mortise_optimizer", "0, states, step", "has the shape [5]", quick=after == 1)

DATA = """static mortise_status dopen(void *s, const mortise_data_request *r) {{ (void)s; (void)r; {open} return 0; }}
static mortise_status describe(void *s, mortise_str name, mortise_split *o) {{ (void)s; (void)name; o->samples = 64; \
{describe} return 0; }}
static mortise_status vocabulary(void *s, int64_t *n) {{ (void)s; *n = 256; return 0; }}
static mortise_status get(void *s, mortise_str split, const int64_t *numbers, const int64_t *epochs, \
uint32_t n, mortise_rows *rows) {{
  (void)s; (void)epochs; (void)split; (void)numbers; (void)n; (void)rows; {get} return 0;
}}
static const int64_t sequence[] = {{ -1 }};
static const mortise_field fields[] = {{ {{ sizeof(mortise_field), MORTISE_I64, {{ "input_ids", 9 }}, {{ 0, 0 }}, 0, \
sequence, 1, 0 }} }};"""


def data(name, place, members="1, fields, dopen, describe, vocabulary, get", open="", describe="", get="", **more):
    provider("data", name, DATA.format(open=open, describe=describe, get=get), "mortise_data", members, place, **more)


data("no_fields", "fields", "0, fields, dopen, describe, vocabulary, get")
data("many_fields", "fields", "0x80000000u, fields, dopen, describe, vocabulary, get", quick=True)
data("null_fields", "fields", "1, NULL, dopen, describe, vocabulary, get")
data("open_throw", "open", open="throw 1;", cxx=True)
data("samples_negative", "samples", describe="o->samples = -5;", quick=True)
data("samples_wild", "samples", describe="o->samples = (int64_t)1 << 62;")
data("about_null", "NULL", describe="o->about = (mortise_str){ NULL, 5 };", quick=True)
data("get_segv", "get", get="segv();", code=SEGV)
data("get_exit", "get", get="exit(0);", quick=True)
data("get_hang", "get", get="hang();", args=TIMEOUT)
data("get_nothing", "put no `")
data("get_wrong_row", "get",
     get="int64_t one = 1; return TABLE(mortise_batch_api, \"mortise.batch/0\")->put(host, rows, n + 5, 0, &one, 1);")
data("get_wild_length", "get",
     get="int64_t one = 1; return TABLE(mortise_batch_api, \"mortise.batch/0\")->put(host, rows, 0, 0, &one, "
         "(size_t)1 << 61);")

COMM = """static mortise_status copen(void *s, const mortise_world *w) {{ (void)s; (void)w; {open} return 0; }}"""
for name, open_, code in [("open_throw", "throw 1;", 71), ("open_internal", "return MORTISE_E_INTERNAL;", 71),
                          ("open_lost", "return MORTISE_E_LOST;", 75)]:
    provider("comm", name, COMM.format(open=open_), "mortise_comm", "0, copen", "open", cxx="throw" in open_, code=code,
             quick=name == "open_throw")

CPU = """static mortise_status dopen(void *s, int32_t i) {{ (void)s; (void)i; {open} return 0; }}
static mortise_status describe(void *s, mortise_str *t) {{ (void)s; t->ptr = "cpu"; t->len = 3; {describe} return 0; }}
static mortise_status memory(void *s, int64_t *u, int64_t *p, int64_t *t) {{ (void)s; *u = *p = *t = 1; {memory} \
return 0; }}"""
for name, open_, describe, memory, place, code in [("open_internal", "return MORTISE_E_INTERNAL;", "", "", "open", 71),
                                                   ("describe_null", "", "t->ptr = NULL;", "", "NULL", 71),
                                                   ("describe_wild", "", "t->len = (size_t)-1;", "", "text", 71),
                                                   ("memory_segv", "", "", "segv();", "memory", SEGV)]:
    provider("device", name, CPU.format(open=open_, describe=describe, memory=memory), "mortise_device",
             "MORTISE_CPU, dopen, describe, memory", place, code=code, quick=name == "describe_null")

GENERATE = ("static mortise_status generate(void *s, const mortise_sample_request *r) {{ "
            "(void)s; (void)r; {} return 0; }}")
for name, statement in [("emit_null", "return r->emit(r->user, (mortise_str){ NULL, 5 });"), ("throw", "throw 1;"),
                        ("exit", "exit(0);")]:
    provider("sample", name, GENERATE.format(statement), "mortise_sampler", "0, generate", "generate",
             cxx="throw" in statement)

FORMAT = """static mortise_status write_(void *s, const mortise_entry *e, uint32_t n, const mortise_sink *k) {{ \
(void)s; (void)e; (void)n; (void)k; {} return 0; }}
static mortise_status read_(void *s, const void *d, uint64_t n, const mortise_entry_visitor *v) {{ (void)s; (void)d; \
(void)n; (void)v; return 0; }}"""
provider("checkpoint.format", "extension_null", FORMAT.format(""), "mortise_format", "0, { NULL, 9 }, write_, read_",
         "NULL")
provider("checkpoint.format", "write_exit", FORMAT.format("exit(0);"), "mortise_format",
         '0, { ".x", 2 }, write_, read_', "write")

# ---- threads of its own ----

for name, statement, place, code in [("segv", "segv();", "thread", SEGV), ("exit", "exit(0);", "exit(0)", 71),
                                     ("abort", "abort();", "thread", ABRT)]:
    case(f"thread_{name}", place,
         functions="static void *run(void *p) { (void)p; usleep(200000); %s return 0; }\n" % statement
         + Case("x").functions,
         create="pthread_t t; if (pthread_create(&t, 0, run, 0)) return 1; pthread_detach(t);",
         args=("--set", "run.length=100000"), code=code, quick=name == "abort")

# ---- compiling ----


def toml(each):
    return (f'[plugin]\nid = "{each.id}"\nversion = "0.1.0"\nsummary = "Bad in one way: {each.name}"\n'
            'status = "alpha"\nsource = "none"\ntier = "portable"\nabi = "0.1"\n'
            f"\n[points]\n{each.points}\n"
            + ('\n[optimizer]\ncut = "element"\ndevices = ["cpu", "cuda"]\n' if each.family == "optimizer" else "")
            + ('\n[device]\nkind = "cpu"\n' if each.family == "device" else ""))


def source(each):
    if each.raw:
        return each.raw + "\n"
    # In C++ the tables' functions are `noexcept`; what is not must be called all the same.
    head = PRELUDE % ("#include <stdexcept>\n#define noexcept" if each.cxx else "")
    return head + each.before + "\n" + BODY % {field.name: getattr(each, field.name)
                                               for field in dataclasses.fields(each)}


def build(each, out):
    folder = out / each.name
    folder.mkdir(parents=True)
    library = folder / f"{each.id}.so"
    (folder / f"{each.id}.toml").write_text(toml(each))
    if each.damage == "folder":
        library.mkdir()
        return
    if each.damage == "fifo":
        os.mkfifo(library)
        return
    file = folder / ("bad.cpp" if each.cxx else "bad.c")
    file.write_text(source(each))
    compiler = ([shutil.which(os.environ.get("CXX", "c++")), "-std=c++20"] if each.cxx else
                [shutil.which(os.environ.get("CC", "cc")), "-std=gnu11"])
    options = ["-O0", "-w", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{SOURCE}/sdk/include",
               f'-DMORTISE_PLUGIN_TOML="{folder}/{each.id}.toml"']
    if "no map" not in each.link and not each.raw:
        options.append(f"-Wl,--version-script={SOURCE}/sdk/cmake/plugin.map")
    options += [o for o in each.link if o != "no map"]
    done = subprocess.run([*compiler, *options, file, "-o", library], capture_output=True, text=True, timeout=120,
                          check=False)
    if done.returncode:
        raise RuntimeError(f"{each.name} does not compile:\n{done.stderr}")
    if each.damage:
        library.write_bytes(each.damage(library.read_bytes()))


def build_all(out, cases):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: build(each, out), cases))


if __name__ == "__main__":
    wanted = [each for each in CASES if not sys.argv[2:] or each.name in sys.argv[2:]]
    build_all(pathlib.Path(sys.argv[1]), wanted)
    print(f"{len(wanted)} plugins in {sys.argv[1]}")
