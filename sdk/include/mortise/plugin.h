/* For plugins in plain C: embedding plugin.toml and reading the configuration.
 *
 * Compile with -DMORTISE_PLUGIN_TOML='"plugin.toml"': the path of the file as a C string, quotation marks included,
 * from the folder in which the compiler runs. CMake's mortise_add_plugin() defines it; pkg-config's flags do not. */
#ifndef MORTISE_PLUGIN_H
#define MORTISE_PLUGIN_H
#include <stdio.h>
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

/* The plugin's own mistake: `create` has failed with it, whatever it returns. */
static inline void mortise_config_fail(mortise_host *host, const char *key, const char *why, const char *type) {
  char text[256];
  snprintf(text, sizeof text, "`%.80s` is read as %s, and %s", key, type, why);
  host->fail(host, MORTISE_E_PLUGIN, mortise_text(text));
}
static inline mortise_value mortise_config_as(mortise_host *host, const char *key, const char *type) {
  const mortise_config_api *config = (const mortise_config_api *)mortise_get(host, "mortise.config/0");
  mortise_value v;
  memset(&v, 0, sizeof v);
  if (!MORTISE_HAS(config, get) || config->get(host, mortise_text(key), &v) != MORTISE_OK)
    mortise_config_fail(host, key, "the host has no such key: is it in [config] of plugin.toml?", type);
  return v;
}
/** The value of a key of [config], of any type; MORTISE_NONE if nobody set it and it has no default. */
static inline mortise_value mortise_config_value(mortise_host *host, const char *key) {
  return mortise_config_as(host, key, "a value");
}
/** A key of type float (or int, converted), int or bool; 0 if nobody set it and it has no default. To read a key that
 * plugin.toml does not have, or has with another type, is a mistake that the host is told of: where it happens in
 * `create`, the plugin is refused with it. */
static inline double mortise_config_float(mortise_host *host, const char *key) {
  const mortise_value v = mortise_config_as(host, key, "a float");
  if (v.tag == MORTISE_INT) return (double)v.v.i;
  if (v.tag == MORTISE_FLOAT) return v.v.f;
  if (v.tag != MORTISE_NONE) mortise_config_fail(host, key, "plugin.toml says otherwise", "a float");
  return 0;
}
static inline int64_t mortise_config_int(mortise_host *host, const char *key) {
  const mortise_value v = mortise_config_as(host, key, "an int");
  if (v.tag == MORTISE_INT) return v.v.i;
  if (v.tag != MORTISE_NONE) mortise_config_fail(host, key, "plugin.toml says otherwise", "an int");
  return 0;
}
static inline int mortise_config_bool(mortise_host *host, const char *key) {
  const mortise_value v = mortise_config_as(host, key, "a bool");
  if (v.tag == MORTISE_LOGICAL) return v.v.i != 0;
  if (v.tag != MORTISE_NONE) mortise_config_fail(host, key, "plugin.toml says otherwise", "a bool");
  return 0;
}

MORTISE_END
#endif
