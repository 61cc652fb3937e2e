/* For plugins in plain C: embedding plugin.toml and reading the configuration.
 *
 * Compile with -DMORTISE_PLUGIN_TOML='"plugin.toml"': the path of the file as a C string, quotation marks included,
 * from the folder in which the compiler runs. CMake's mortise_add_plugin() defines it; pkg-config's flags do not. */
#ifndef MORTISE_PLUGIN_H
#define MORTISE_PLUGIN_H
#include <stdlib.h>
#include <string.h>
#include "config.h"
MORTISE_BEGIN

/* The text of plugin.toml as bytes of the library, between two labels. The host compares it with the file beside it. */
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

/** The one symbol that a plugin's library exports, made of its three functions. Beside it: MORTISE_EMBED_MANIFEST. */
#define MORTISE_DESCRIBE_PLUGIN(create_fn, attachments_fn, destroy_fn) \
  const mortise_plugin *mortise_plugin_v0(void) MORTISE_NOEXCEPT {     \
    static mortise_plugin plugin;                                      \
    plugin.struct_size = sizeof plugin;                                \
    plugin.abi_major = MORTISE_ABI_MAJOR;                              \
    plugin.abi_minor = MORTISE_ABI_MINOR;                              \
    plugin.manifest.ptr = mortise_manifest_begin;                      \
    plugin.manifest.len = MORTISE_MANIFEST_BYTES;                      \
    plugin.create = create_fn;                                         \
    plugin.attachments = attachments_fn;                               \
    plugin.destroy = destroy_fn;                                       \
    return &plugin;                                                    \
  }

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

MORTISE_END
#endif
