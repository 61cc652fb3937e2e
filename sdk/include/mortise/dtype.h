/* What is known of each element type. */
#ifndef MORTISE_DTYPE_H
#define MORTISE_DTYPE_H
#include <string.h>

#include "abi.h"
#include "half.h"
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

/** One element of a type that weights may be of, as a number; 0 of any other type. */
static inline double mortise_element_get(uint32_t dtype, const void *at) {
  double d = 0;
  float f;
  uint16_t h;
  switch (dtype) {
    case MORTISE_F64: memcpy(&d, at, sizeof d); return d;
    case MORTISE_F32: memcpy(&f, at, sizeof f); return (double)f;
    case MORTISE_BF16: memcpy(&h, at, sizeof h); return (double)mortise_bf16_to_float(h);
    case MORTISE_F16: memcpy(&h, at, sizeof h); return (double)mortise_f16_to_float(h);
    default: return 0;
  }
}
/** The other way, rounded once, to the nearest; writes nothing of any other type. */
static inline void mortise_element_set(uint32_t dtype, void *at, double x) {
  const float f = (float)x;
  uint16_t h;
  switch (dtype) {
    case MORTISE_F64: memcpy(at, &x, sizeof x); break;
    case MORTISE_F32: memcpy(at, &f, sizeof f); break;
    case MORTISE_BF16: h = mortise_bf16_from_double(x), memcpy(at, &h, sizeof h); break;
    case MORTISE_F16: h = mortise_f16_from_double(x), memcpy(at, &h, sizeof h); break;
    default: break;
  }
}

MORTISE_END
#endif
