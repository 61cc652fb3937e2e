/* For plugins in plain C: embedding plugin.toml, reading the configuration, and the simple form of an optimizer.
 * Compile with -DMORTISE_PLUGIN_TOML='"plugin.toml"'; CMake's mortise_add_plugin() and pkg-config's flags do. */
#ifndef MORTISE_PLUGIN_H
#define MORTISE_PLUGIN_H
#include <stdlib.h>
#include <string.h>
#include "optimizer.h"
MORTISE_BEGIN

/* The text of plugin.toml as bytes of the library, between two labels; so that the library says what it is without its
 * file. */
#ifdef MORTISE_PLUGIN_TOML
#define MORTISE_EMBED_MANIFEST                                                            \
  __asm__(".pushsection .rodata\nmortise_manifest_begin:\n.incbin \"" MORTISE_PLUGIN_TOML \
          "\"\nmortise_manifest_end:\n.byte 0\n.popsection");                             \
  extern __attribute__((visibility("hidden"))) const char mortise_manifest_begin[], mortise_manifest_end[];
/* Two labels of the assembler: numbers to the language, not ends of one array. */
#define MORTISE_MANIFEST_BYTES ((size_t)((uintptr_t)mortise_manifest_end - (uintptr_t)mortise_manifest_begin))
#else
#define MORTISE_EMBED_MANIFEST extern const char mortise_plugin_toml_is_not_defined[MORTISE_PLUGIN_TOML_IS_NOT_DEFINED];
#endif

static inline mortise_str mortise_text(const char *s) {
  mortise_str r;
  r.ptr = s;
  r.len = strlen(s);
  return r;
}

static inline mortise_value mortise_config_value(mortise_host *host, const char *key) {
  const mortise_config_api *config = (const mortise_config_api *)mortise_get(host, "mortise.config/0");
  mortise_value v;
  memset(&v, 0, sizeof v);
  if (MORTISE_HAS(config, get)) config->get(host, mortise_text(key), &v);
  return v;
}
/** A key of type float, int or bool; the schema of plugin.toml has checked it already. */
static inline double mortise_config_float(mortise_host *host, const char *key) {
  return mortise_config_value(host, key).v.f;
}
static inline int64_t mortise_config_int(mortise_host *host, const char *key) {
  return mortise_config_value(host, key).v.i;
}
static inline int mortise_config_bool(mortise_host *host, const char *key) {
  return mortise_config_value(host, key).v.i != 0;
}

/* ---- the simple optimizer ----
 *   typedef struct { double beta1; } lion;
 *   static mortise_status prepare(lion *l, mortise_host *host) { l->beta1 = mortise_config_float(host, "beta1"); return
 * 0; } static mortise_status step(lion *l, mortise_host *host, const mortise_lists_api *op, const
 * mortise_optimizer_group *g) { … } MORTISE_OPTIMIZER_SIMPLE(lion, prepare, step, "momentum")       names of states,
 * each zero at first and of the parameter's shape */
#define MORTISE_OPTIMIZER_SIMPLE(type, prepare, step, ...)                                                        \
  MORTISE_EMBED_MANIFEST                                                                                          \
  typedef struct {                                                                                                \
    mortise_host *host;                                                                                           \
    const mortise_lists_api *lists;                                                                               \
    type user;                                                                                                    \
  } mortise_simple_instance;                                                                                      \
  static mortise_status mortise_simple_step(void *self, const mortise_optimizer_group *g) {                       \
    mortise_simple_instance *s = (mortise_simple_instance *)self;                                                 \
    return step(&s->user, s->host, s->lists, g);                                                                  \
  }                                                                                                               \
  static mortise_status mortise_simple_create(mortise_host *host, void **self) {                                  \
    mortise_simple_instance *s = (mortise_simple_instance *)calloc(1, sizeof *s);                                 \
    if (!s) return host->fail(host, MORTISE_E_MEMORY, MORTISE_STR("out of memory"));                              \
    s->host = host;                                                                                               \
    s->lists = (const mortise_lists_api *)mortise_get(host, "mortise.lists/0");                                   \
    *self = s;                                                                                                    \
    if (!s->lists) return host->fail(host, MORTISE_E_NOT_FOUND, MORTISE_STR("this host has no mortise.lists/0")); \
    return prepare(&s->user, host);                                                                               \
  }                                                                                                               \
  static mortise_status mortise_simple_attachments(void *self, const mortise_attachment **list, uint32_t *n,      \
                                                   uint32_t *stride) {                                            \
    static const char *const names[] = {__VA_ARGS__};                                                             \
    static mortise_str states[sizeof names / sizeof *names];                                                      \
    static mortise_optimizer_simple object;                                                                       \
    static mortise_attachment attachment;                                                                         \
    (void)self;                                                                                                   \
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) states[i] = mortise_text(names[i]);                 \
    object.struct_size = sizeof object;                                                                           \
    object.n_states = sizeof names / sizeof *names;                                                               \
    object.states = states;                                                                                       \
    object.step = mortise_simple_step;                                                                            \
    attachment.struct_size = sizeof attachment;                                                                   \
    attachment.flags = MORTISE_SIMPLE_OPTIMIZER;                                                                  \
    attachment.point = mortise_text("optimizer");                                                                 \
    attachment.object = &object;                                                                                  \
    *list = &attachment;                                                                                          \
    *n = 1;                                                                                                       \
    *stride = sizeof attachment;                                                                                  \
    return MORTISE_OK;                                                                                            \
  }                                                                                                               \
  static void mortise_simple_destroy(void *self) { free(self); }                                                  \
  const mortise_plugin *mortise_plugin_v0(void) {                                                                 \
    static mortise_plugin plugin;                                                                                 \
    plugin.struct_size = sizeof plugin;                                                                           \
    plugin.abi_major = MORTISE_ABI_MAJOR;                                                                         \
    plugin.abi_minor = MORTISE_ABI_MINOR;                                                                         \
    plugin.manifest.ptr = mortise_manifest_begin;                                                                 \
    plugin.manifest.len = MORTISE_MANIFEST_BYTES;                                                                 \
    plugin.create = mortise_simple_create;                                                                        \
    plugin.attachments = mortise_simple_attachments;                                                              \
    plugin.destroy = mortise_simple_destroy;                                                                      \
    return &plugin;                                                                                               \
  }

MORTISE_END
#endif
