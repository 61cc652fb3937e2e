/* Philox4x32-10, counter-based random bits: the same for the host's processor, CUDA, initialisation, shuffling and
 * dropout. Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3". */
#ifndef MORTISE_PHILOX_H
#define MORTISE_PHILOX_H
#include "abi.h"

/** A place in the stream. Bits of element e are 16-bit lane e % 8 of block e / 8: four words, low half first. */
typedef struct mortise_philox {
  uint32_t key[2];
  uint32_t site, step, micro;
} mortise_philox;

MORTISE_INLINE void mortise_philox_words(const uint32_t key[2], uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                                         uint32_t out[4]) {
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
    const uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

/** The last word of the counter: `micro`, and above its 16 low bits what the first word has no room for, so that no
 * bits come twice in a tensor of more than 2^35 elements. */
MORTISE_INLINE uint32_t mortise_philox_last(const mortise_philox *p, uint64_t block) {
  return p->micro ^ (uint32_t)(block >> 32 << 16);
}

/** Eight 16-bit numbers: those of elements 8·block … 8·block+7. */
MORTISE_INLINE void mortise_philox_block(const mortise_philox *p, uint64_t block, uint16_t out[8]) {
  uint32_t w[4];
  mortise_philox_words(p->key, (uint32_t)block, p->site, p->step, mortise_philox_last(p, block), w);
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = (uint16_t)(w[i] & 0xFFFFu);
    out[2 * i + 1] = (uint16_t)(w[i] >> 16);
  }
}

/** Dropout keeps an element when its 16 bits are at least this; so p is a multiple of 1/65536, and what is kept is
 * scaled by mortise_dropout_scale. */
MORTISE_INLINE uint32_t mortise_dropout_threshold(double p) { return (uint32_t)(p * 65536.0 + 0.5); }
MORTISE_INLINE double mortise_dropout_scale(double p) {
  return 65536.0 / (65536.0 - (double)mortise_dropout_threshold(p));
}

#endif
