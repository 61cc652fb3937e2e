// MORTISE_CLONES before a plain function: one copy of its loops an instruction set (AVX-512, AVX2, SSE2), of which the
// loader takes the best that the processor has. It asks before a sanitizer's runtime is ready for its own code.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define MORTISE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MORTISE_CLONES
#endif
