/* What is known of each element type. */
#ifndef MORTISE_DTYPE_H
#define MORTISE_DTYPE_H
#include "abi.h"
MORTISE_BEGIN

typedef struct mortise_dtype_row {
  uint32_t dtype;          /* its own number, which is its index here */
  uint32_t bytes;          /* of an element */
  const char *name;        /* "bf16", as a manifest writes it; "" where no weight is of it */
  const char *safetensors; /* "BF16" */
} mortise_dtype_row;

static const mortise_dtype_row mortise_dtypes[] = {
    {MORTISE_NO_DTYPE, 0, "", ""},
#define MORTISE_DTYPE_ROW(symbol, number, bytes, name, safetensors, torch) {number, bytes, name, safetensors},
#include "dtypes.def"
#undef MORTISE_DTYPE_ROW
};
enum { MORTISE_DTYPES = sizeof mortise_dtypes / sizeof *mortise_dtypes };

/** Never NULL: what is no element type has the row of MORTISE_NO_DTYPE, of 0 bytes. */
static inline const mortise_dtype_row *mortise_dtype_of(uint32_t dtype) {
  return &mortise_dtypes[dtype < (uint32_t)MORTISE_DTYPES ? dtype : 0];
}
/** One that weights may be of: those with a name in a manifest. */
static inline int mortise_dtype_is_float(uint32_t dtype) { return *mortise_dtype_of(dtype)->name != 0; }

MORTISE_END
#endif
