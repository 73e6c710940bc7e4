/* Kaldi's uniform numbers, the same bits as plain.py's. rand_r of the C library takes three steps of
   a linear congruential generator for each number. Sixteen numbers are worked on side by side, each
   by steps over all sixteen at once; a part of an array begins with a jump s -> A s + C, with A and C
   of as many steps, found by squaring. */

#define RAND_FACTOR 1103515245u /* MULTIPLIER, INCREMENT, BLOCK of plain.py and cpu.py */
#define RAND_OFFSET 12345u
enum { RAND_BLOCK = 1 << 12 };

typedef struct {
  f32 *out;
  i64 count, state; /* numbers to draw; rand_r's state before the first */
} uniform_arguments;

void uniform(const uniform_arguments *a, i64 begin, i64 end) {
  const i64 first = begin * RAND_BLOCK, last = NN_LEAST(end * RAND_BLOCK, a->count);
  u32 state = (u32)a->state, factor = RAND_FACTOR, offset = RAND_OFFSET;
  for (i64 left = 3 * first; left; left >>= 1) {
    if (left & 1) state = factor * state + offset;
    offset *= factor + 1;
    factor *= factor;
  }
  u32 s[3][16], far_factor = 1, far_offset = 0;
  for (int k = 0; k < 48; ++k) {
    state = RAND_FACTOR * state + RAND_OFFSET;
    s[k % 3][k / 3] = state;
    far_offset = RAND_FACTOR * far_offset + RAND_OFFSET;
    far_factor *= RAND_FACTOR;
  }
  for (i64 i = first; i < last; i += 16) {
    f32 found[16];
    for (int k = 0; k < 16; ++k) {
      const u32 high = (s[0][k] >> 16) & 2047, middle = (s[1][k] >> 16) & 1023;
      const u32 bits = ((high << 10 ^ middle) << 10) ^ ((s[2][k] >> 16) & 1023);
      found[k] = (f32)(((f64)(s32)bits + 1.0) / 2147483649.0);
    }
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 16; ++k) s[j][k] = far_factor * s[j][k] + far_offset;
    memcpy(a->out + i, found, sizeof(f32) * (size_t)NN_LEAST(16, last - i));
  }
}
