/* What every other header of Mortise includes: values, errors, events, attachments and the one exported symbol.
 *
 * Plain C11, also valid C++20. A plugin is a shared library that exports exactly one function, `mortise_plugin_v0`,
 * which returns a static descriptor. Everything else it asks the host for by id:
 *     host->get_interface(host, "mortise.tensor/0")
 *
 * Rules that hold for every function of every table, unless its comment says otherwise:
 *   - The first argument is the plugin's own `mortise_host *`, so that errors, time and bytes are charged to it.
 *   - It returns 0, or a status; the text of a failure is kept by the host and the caller need only return the status.
 *   - Arguments are borrowed for the call. Handles in results are owned by the receiver, who releases them.
 *   - It may be called on any thread: [any-thread]. Other tags:
 *       [build]     while the run is assembled
 *       [loop]      the thread that trains
 *       [autograd]  while backward runs
 *       [data]      a loader's thread
 *   - No C++ type, exception, allocator or FILE * crosses. Every function pointer is noexcept in C++.
 *   - A struct begins with its own size and only ever grows at its end. Not so those that stand in arrays and unions,
 *     which are as they are for good: mortise_str, mortise_value, mortise_column, mortise_attr,
 *     mortise_saved, mortise_state_spec, mortise_extent, mortise_philox.
 *
 * Since 0.1 */
#ifndef MORTISE_ABI_H
#define MORTISE_ABI_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define MORTISE_NOEXCEPT noexcept
#define MORTISE_BEGIN extern "C" {
#define MORTISE_END }
#else
#define MORTISE_NOEXCEPT
#define MORTISE_BEGIN
#define MORTISE_END
#endif

/* Functions of these headers that kernels of CUDA call, too. */
#ifdef __CUDACC__
#define MORTISE_BOTH __host__ __device__
#else
#define MORTISE_BOTH
#endif
#define MORTISE_INLINE MORTISE_BOTH static inline

MORTISE_BEGIN

#define MORTISE_ABI_MAJOR 0
#define MORTISE_ABI_MINOR 2

/** 0 is success; anything else is one of `MORTISE_E_…`. */
typedef int32_t mortise_status;
enum {
  MORTISE_OK = 0,
  MORTISE_E_ARGUMENT = 1,    /* a caller's mistake: wrong tag, index or count */
  MORTISE_E_SHAPE = 2,       /* tensors do not fit one another */
  MORTISE_E_UNSUPPORTED = 3, /* asked for something that this provider cannot do */
  MORTISE_E_CONFIG = 4,      /* the manifest is at fault; exit code 64 */
  MORTISE_E_DATA = 5,        /* data or a checkpoint is at fault; exit code 65 */
  MORTISE_E_IO = 6,          /* reading or writing; exit code 74 */
  MORTISE_E_MEMORY = 7,      /* out of memory, on the host or the device; exit code 69 */
  MORTISE_E_OPERATOR = 8,    /* LibTorch refused an operator */
  MORTISE_E_PLUGIN = 9,      /* an exception was caught at a plugin's edge; exit code 71 */
  MORTISE_E_NOT_FOUND = 10,  /* no such interface, field, key, parameter */
  MORTISE_E_INTERNAL = 11,   /* our own mistake; exit code 70 */
  MORTISE_E_LOST = 12        /* another rank ended, or did not come in time; exit code 75. Since 0.2 */
};

/** UTF-8, borrowed, not necessarily terminated by a zero. */
typedef struct mortise_str {
  const char *ptr;
  size_t len;
} mortise_str;

#ifdef __cplusplus
#define MORTISE_STR(literal) (mortise_str{(literal), sizeof(literal) - 1})
#else
#define MORTISE_STR(literal) ((mortise_str){(literal), sizeof(literal) - 1})
#endif

typedef struct mortise_host mortise_host;       /* a plugin's own handle of the host */
typedef struct mortise_tensor mortise_tensor;   /* a retained handle; opaque */
typedef struct mortise_param mortise_param;     /* a parameter; stable for the run; what a model keeps */
typedef struct mortise_layer mortise_layer;     /* a declared layer; stable for the run */
typedef struct mortise_builder mortise_builder; /* the declaration under construction */
typedef struct mortise_batch mortise_batch;     /* named tensors and counts of one micro-batch */
typedef struct mortise_rows mortise_rows;       /* where a data plugin puts the samples it was asked for */
typedef struct mortise_next mortise_next;       /* the rest of a chain of wrappers; stable for the run */
typedef struct mortise_kept mortise_kept;       /* a call that can be run again, later, on any thread */
typedef struct mortise_op mortise_op;           /* an interned LibTorch operator */
typedef struct mortise_node mortise_node;       /* a node of the autograd graph, inside its own callbacks */

/** Element types: MORTISE_F32, … as dtypes.def lists them; dtype.h says what is known of each. 0 is "none": for a
 * compute dtype it means "as the weights are stored". */
enum {
#define MORTISE_DTYPE_ROW(symbol, number, bytes, name, safetensors, torch) MORTISE_##symbol = (number),
#include "dtypes.def"
#undef MORTISE_DTYPE_ROW
  MORTISE_NO_DTYPE = 0
};

/** What a `mortise_value` holds. */
enum {
  MORTISE_NONE = 0,
  MORTISE_TENSOR = 1,  /* v.t: borrowed as an argument, owned as a result */
  MORTISE_TENSORS = 2, /* v.ts, count; a NULL element is an absent optional tensor */
  MORTISE_INT = 3,     /* v.i */
  MORTISE_FLOAT = 4,   /* v.f */
  MORTISE_LOGICAL = 5, /* v.i: 0 or 1 */
  MORTISE_TEXT = 6,    /* v.s */
  MORTISE_INTS = 7,    /* v.is, count */
  MORTISE_FLOATS = 8,  /* v.fs, count */
  MORTISE_TEXTS = 9,   /* v.ss, count */
  MORTISE_DTYPE = 10,  /* v.i: one of the element types above */
  MORTISE_AMOUNT = 11, /* v.f of unit `count`: a duration or a size of batch */
  MORTISE_BATCH = 12,  /* v.b: borrowed as an argument, owned as a result */
  MORTISE_PARAM = 13   /* v.p */
};

/** Units of an AMOUNT. A bare integer duration is steps; a bare size of batch is samples. */
enum {
  MORTISE_STEPS = 0,
  MORTISE_EPOCHS = 1,
  MORTISE_TOKENS = 2,
  MORTISE_SAMPLES = 3,
  MORTISE_SECONDS = 4,
  MORTISE_PERCENT = 5
};

/** One tagged value, 24 bytes. Which member of `v` counts is said by `tag`. */
typedef struct mortise_value {
  uint32_t tag, count;
  union {
    int64_t i;
    double f;
    mortise_str s;
    mortise_tensor *t;
    mortise_tensor *const *ts;
    const int64_t *is;
    const double *fs;
    const mortise_str *ss;
    mortise_batch *b;
    mortise_param *p;
  } v;
} mortise_value;

/** What the run is doing. A place is a path and a mode. */
enum { MORTISE_TRAIN = 0, MORTISE_EVAL = 1, MORTISE_SAMPLE = 2, MORTISE_MODES = 3 };

/* ---- records and events ---- */

/** One column of a record: a number (tag MORTISE_FLOAT or MORTISE_INT) or a text. */
typedef struct mortise_column {
  mortise_str name, unit;
  mortise_value value;
} mortise_column;

/** What happened: kind is "run", "step", "eval", "sample", "saved", "note" or "end". Each kind has its own columns:
 *  docs/guide/records.md lists them. Borrowed for the event.
 *
 *  A record of kind "step" comes of every step that was tried, so that guards see each. Its column `due` (INT) is 1
 *  where `[log] every` asks for it to be shown: a logger leaves out what is neither due nor `skipped` (INT, 1 where the
 *  step was not applied). Rates, memory and the time left stand in due records only, over the steps since the last. */
typedef struct mortise_record {
  uint32_t struct_size, n_columns;
  mortise_str kind;
  const mortise_column *columns;
} mortise_record;

/** What a listener is told. Fields that an event has no use for are 0 or NULL. */
typedef struct mortise_event {
  uint32_t struct_size, point;
  mortise_param *param;         /* params.declared */
  const mortise_record *record; /* record; run.begin (kind "run"); run.end (kind "end"; NULL after a failure) */
  mortise_str path;
  int32_t micro, last;
  mortise_status outcome; /* run.end, and the end of paired events */
  uint32_t phase;         /* paired events: 0 begin, 1 end */
} mortise_event;

/* ---- attaching ---- */

typedef struct mortise_call mortise_call; /* call.h */
typedef mortise_status (*mortise_call_fn)(void *self, mortise_call *) MORTISE_NOEXCEPT;
typedef mortise_status (*mortise_wrap_fn)(void *self, mortise_call *, mortise_next *) MORTISE_NOEXCEPT;
typedef mortise_status (*mortise_event_fn)(void *self, const mortise_event *) MORTISE_NOEXCEPT;

/** One attachment; it must also stand in plugin.toml. Exactly one of the four pointers is set. */
typedef struct mortise_attachment {
  uint32_t struct_size;
  uint32_t flags;          /* 0 */
  mortise_str point;       /* "optimizer", "block", "step.window", …; "*" wraps every call and operator, in `watch` */
  const void *object;      /* provide an object or operator: mortise_optimizer, mortise_operator, … by the point */
  mortise_call_fn provide; /* provide a call */
  mortise_wrap_fn wrap;    /* wrap a call */
  mortise_event_fn listen; /* listen to an event or filter */
} mortise_attachment;

/* ---- the two ends ---- */

struct mortise_host {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor;
  /** A table by id, e.g. "mortise.tensor/0"; NULL if this host has none. It lives as long as the host. */
  const void *(*get_interface)(mortise_host *, mortise_str id)MORTISE_NOEXCEPT;
  /** Keeps `text` (copied) as this thread's error and returns `code`. Said in `create`, the plugin is refused with it,
   * whatever `create` returns. */
  mortise_status (*fail)(mortise_host *, mortise_status code, mortise_str text) MORTISE_NOEXCEPT;
};

/** A plugin's static descriptor. */
typedef struct mortise_plugin {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor;
  mortise_str manifest; /* the text of plugin.toml, embedded; must equal the file beside the library */
  /** Makes an instance; `*self` is what every callback gets. Reads its configuration here. [build] */
  mortise_status (*create)(mortise_host *, void **self) MORTISE_NOEXCEPT;
  /** The attachments, an array owned by the plugin; `*stride` is the size of one. [build] */
  mortise_status (*attachments)(void *self, const mortise_attachment **, uint32_t *n,
                                uint32_t *stride) MORTISE_NOEXCEPT;
  /** Frees the instance. The library itself is never unloaded. [loop] */
  void (*destroy)(void *self) MORTISE_NOEXCEPT;
} mortise_plugin;

/** The one exported symbol. */
#define MORTISE_EXPORT __attribute__((visibility("default")))
MORTISE_EXPORT const mortise_plugin *mortise_plugin_v0(void) MORTISE_NOEXCEPT;

/** Negotiation, written once: the table `id`, or NULL. A table is good for members below its own struct_size:
 *      const mortise_tensor_api *t = mortise_get(host, "mortise.tensor/0");
 *      if (MORTISE_HAS(t, empty)) … */
static inline const void *mortise_get(mortise_host *host, const char *id) {
  size_t n = 0;
  while (id[n]) ++n;
  mortise_str s;
  s.ptr = id;
  s.len = n;
  return host->get_interface(host, s);
}
#define MORTISE_HAS(table, member)                                                                                \
  ((table) != NULL && (table)->struct_size >= offsetof(__typeof__(*(table)), member) + sizeof((table)->member) && \
   (table)->member != NULL)
/** Whether a struct that the caller gave to be filled has room for `member`: those of older hosts are shorter. */
#define MORTISE_HAS_ROOM(out, member) \
  ((out)->struct_size >= offsetof(__typeof__(*(out)), member) + sizeof((out)->member))

/* Members of tables. FN: a host's function. PLUG: a plugin's function, which gets its own `self`. */
#define MORTISE_FN(name, ...) mortise_status (*name)(mortise_host * h, __VA_ARGS__) MORTISE_NOEXCEPT
#define MORTISE_FN_VOID(name, ...) void (*name)(mortise_host * h, __VA_ARGS__) MORTISE_NOEXCEPT
#define MORTISE_PLUG(name, ...) mortise_status (*name)(void *self, __VA_ARGS__) MORTISE_NOEXCEPT

MORTISE_END
#endif
