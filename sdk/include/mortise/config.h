/* A plugin's own table of the manifest, already checked against its schema and completed with defaults and presets. */
#ifndef MORTISE_CONFIG_H
#define MORTISE_CONFIG_H
#include "abi.h"
MORTISE_BEGIN

/** "mortise.config/0". Values live as long as the run. */
typedef struct mortise_config_api {
  uint32_t struct_size;
  /** The value of a key of this plugin's schema; MORTISE_NONE if it has no default and was not set. A path is TEXT,
   * absolute; a list of paths is TEXTS, with globs expanded; an empty list is TEXTS of none, whatever its type.
   * MORTISE_E_NOT_FOUND for a key that the schema lacks. */
  MORTISE_FN(get, mortise_str key, mortise_value *);
  /** Refuses a value: returns MORTISE_E_CONFIG, and the run's error names the key's file, line and column, with this
   * reason and fix. */
  MORTISE_FN(blame, mortise_str key, mortise_str why, mortise_str fix);
  /** Likewise, under a code of its own.
   *   code    letters a to z, digits and `_`, such as "batch_arithmetic"; scripts and `--json` see it. Anything else is
   *           taken for "refused_value", which is what `blame` says
   *   beside  stands to the right of the position, "512 / (16 × 6) = 5.33"; may be empty */
  MORTISE_FN(refuse, mortise_str code, mortise_str key, mortise_str why, mortise_str beside, mortise_str fix);
  /** The pattern that element `index` of a list of paths was found by, absolute; the path itself where none was
   * written. Since 0.2 */
  MORTISE_FN(pattern, mortise_str key, uint32_t index, mortise_str *);
} mortise_config_api;

enum { MORTISE_LOG_ERROR = 0, MORTISE_LOG_WARNING = 1, MORTISE_LOG_INFO = 2, MORTISE_LOG_DEBUG = 3 };
/** "mortise.log/0": the run's own log (stderr and log.txt), a line each; never what a user asked to see, which is a
 * record. A plugin prints nothing to stdout: with --json that is for records alone. */
typedef struct mortise_log_api {
  uint32_t struct_size;
  MORTISE_FN_VOID(write, uint32_t level, mortise_str line);
} mortise_log_api;

MORTISE_END
#endif
