/* Products of quantized rows with integer weights; see __init__.py for the scheme and its bounds.

   The product works on 16 bytes of a row at a time (16 numbers of 8 bits or 8 of 16) for 8 outputs.
   Weights stand in memory in the order of these steps: for 4 bytes of a row the 4 bytes of each of 8
   outputs, so that a vector register of 32 bytes multiplies 4 broadcast bytes. All paths give the
   same sums: no sum can overflow, whatever the order. */


/* The rest of the library is compiled with -O1, which makes products take 6 % longer. */
#pragma GCC push_options
#pragma GCC optimize("O2")

enum { Q_STEP = 16, Q_OUTPUTS = 8, Q_ROWS = 8, Q_BLOCK_BYTES = 96 << 10 };

typedef s32 q_s32 __attribute__((vector_size(32)));
typedef f32 q_f32 __attribute__((vector_size(32)));
typedef s32 q_s32_anywhere __attribute__((vector_size(32), aligned(4), may_alias));
typedef f32 q_f32_anywhere __attribute__((vector_size(32), aligned(4), may_alias));
#define Q_INLINE static inline __attribute__((always_inline))

Q_INLINE q_s32 q_broadcast(const u8 *x, int quad) {
  s32 bytes;
  memcpy(&bytes, x + 4 * quad, 4);
  return (q_s32){bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes};
}

/* The weights of a step: 4 vectors by value, so that they stay in registers. */
#define Q_WEIGHTS q_s32 w0, q_s32 w1, q_s32 w2, q_s32 w3
typedef q_s32 q_dot(q_s32 sum, const u8 *x, Q_WEIGHTS);

/* sum + the products of 16 bytes at x with the weights of 8 outputs, in plain C for type `unit`. */
#define Q_PLAIN(name, unit_x, unit_w) \
  Q_INLINE q_s32 name(q_s32 sum, const u8 *x, Q_WEIGHTS) { \
    enum { UNITS = 4 / sizeof(unit_w) }; \
    const q_s32 w[4] = {w0, w1, w2, w3}; \
    for (int quad = 0; quad < 4; ++quad) \
      for (int o = 0; o < Q_OUTPUTS; ++o) \
        for (int k = 0; k < UNITS; ++k) \
          sum[o] += (s32)((const unit_x *)x)[UNITS * quad + k] * ((const unit_w *)&w[quad])[UNITS * o + k]; \
    return sum; \
  }
Q_PLAIN(q_plain8, u8, signed char)
Q_PLAIN(q_plain16, int16_t, int16_t)

/* The same for four products of 4 bytes; MULTIPLY(x, w) adds to `sum`. */
#define Q_FAST(name, MULTIPLY) \
  Q_INLINE q_s32 name(q_s32 sum, const u8 *x, Q_WEIGHTS) { \
    MULTIPLY(q_broadcast(x, 0), w0); \
    MULTIPLY(q_broadcast(x, 1), w1); \
    MULTIPLY(q_broadcast(x, 2), w2); \
    MULTIPLY(q_broadcast(x, 3), w3); \
    return sum; \
  }

#if (defined(__AVX512VNNI__) && defined(__AVX512VL__)) || defined(__AVXVNNI__)
/* Assembly, because compilers do not agree on the names of these instructions. */
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define Q_VNNI(name, x, w) __asm__(name " %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))
#else
#define Q_VNNI(name, x, w) __asm__("%{vex%} " name " %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w))
#endif
#define Q_BYTES(x, w) Q_VNNI("vpdpbusd", x, w)
#define Q_WORDS(x, w) Q_VNNI("vpdpwssd", x, w)
Q_FAST(q_fast8, Q_BYTES)
Q_FAST(q_fast16, Q_WORDS)
#elif defined(__AVX2__)
typedef char q_s8 __attribute__((vector_size(32)));
typedef int16_t q_s16 __attribute__((vector_size(32)));
/* vpmaddubsw saturates at 16 bits, and two results are added up in 16 bits before vpmaddwd widens
   them. The bound on lanes of weights excludes that any of this overflows. */
#define Q_PAIRS(quad, w) ((q_s16)__builtin_ia32_pmaddubsw256((q_s8)q_broadcast(x, quad), (q_s8)(w)))
#define Q_WIDENED(x, w) ((q_s32)__builtin_ia32_pmaddwd256((q_s16)(x), (q_s16)(w)))
Q_INLINE q_s32 q_fast8(q_s32 sum, const u8 *x, Q_WEIGHTS) {
  const q_s16 ones = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  q_s16 first = Q_PAIRS(0, w0), last = Q_PAIRS(2, w2);
  first += Q_PAIRS(1, w1);
  last += Q_PAIRS(3, w3);
  return sum + Q_WIDENED(first, ones) + Q_WIDENED(last, ones);
}
#define Q_WORDS(x, w) sum += Q_WIDENED(x, w)
Q_FAST(q_fast16, Q_WORDS)
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
typedef union { q_s32 whole; int32x4_t sum[2]; int8x16_t bytes[2]; } q_halves;
Q_INLINE q_s32 q_dots(q_s32 sum, q_s32 x, q_s32 w) {
  q_halves s = {sum}, a = {x}, b = {w};
  for (int i = 0; i < 2; ++i) s.sum[i] = vdotq_s32(s.sum[i], a.bytes[i], b.bytes[i]);
  return s.whole;
}
/* vdotq_s32 takes signed bytes: q - 128, for which q_tile adds 128 times the sum of the weights. */
#define Q_OFFSET 128
#define Q_BYTES(x, w) sum = q_dots(sum, (x) ^ (s32)0x80808080, w)
Q_FAST(q_fast8, Q_BYTES)
#define q_fast16 q_plain16
#else
#define q_fast8 q_plain8
#define q_fast16 q_plain16
#endif
#ifndef Q_OFFSET
#define Q_OFFSET 0
#endif

typedef struct {
  f32 *out;
  const u8 *rows;      /* quantized rows, row_bytes apart, a multiple of Q_STEP */
  const f32 *ranges;   /* step and zero of each row */
  const u8 *weights;   /* (parts, panels, row_bytes / 4, 8, 4 bytes) */
  const s32 *sums;     /* (parts, panels, 8): sums of each output's weights */
  const f32 *scales;   /* by output */
  const f32 *bias;     /* by output, or NULL */
  const i64 *starts;   /* by part: the row that output row 0 reads */
  i64 parts, stride, num_rows, num_outputs, out_stride, row_bytes, is_wide, is_plain, adds;
} integer_affine_arguments;

/* The sums of products of 1, 4 or 8 rows, `stride` bytes apart, with the weights at w of 8 outputs.
   `count` and `dot` are constants. The sums are variables, as GCC keeps no array in registers. Few
   pointers keep all of them in registers, too. */
Q_INLINE void q_sums(q_s32 *sum, const u8 *x, i64 stride, const q_s32_anywhere *w, i64 bytes, int count, q_dot *dot) {
  q_s32 s0 = sum[0], s1 = sum[1], s2 = sum[2], s3 = sum[3], s4 = sum[4], s5 = sum[5], s6 = sum[6], s7 = sum[7];
  const u8 *const end = x + bytes, *y = x + 4 * stride;
  const i64 three = 3 * stride;
#define Q_SUM(s, x) s = dot(s, x, w0, w1, w2, w3)
  for (; x < end; x += Q_STEP, y += Q_STEP, w += 4) {
    q_s32 w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
    NN_KEEP(w0); NN_KEEP(w1); NN_KEEP(w2); NN_KEEP(w3);
    Q_SUM(s0, x);
    if (count >= 4) { Q_SUM(s1, x + stride); Q_SUM(s2, x + 2 * stride); Q_SUM(s3, x + three); }
    if (count >= 8) { Q_SUM(s4, y); Q_SUM(s5, y + stride); Q_SUM(s6, y + 2 * stride); Q_SUM(s7, y + three); }
  }
  sum[0] = s0; sum[1] = s1; sum[2] = s2; sum[3] = s3; sum[4] = s4; sum[5] = s5; sum[6] = s6; sum[7] = s7;
}

/* The first `size` of 8 numbers at x, or zeros if x is NULL. */
static __attribute__((noinline, cold)) q_f32 q_first(const f32 *x, i64 size) {
  q_f32 found = {0};
  for (i64 o = 0; x && o < size; ++o) found[o] = x[o];
  return found;
}

static __attribute__((noinline, cold)) void q_store_first(f32 *out, q_f32 value, i64 size, i64 adds) {
  for (i64 o = 0; o < size; ++o) out[o] = adds ? out[o] + value[o] : value[o];
}

/* Outputs [8 panel, 8 panel + 8) of `count` rows from `first` on. */
Q_INLINE void q_tile(const integer_affine_arguments *a, i64 first, i64 panel, int count, q_dot *dot) {
  const i64 bytes = a->row_bytes, panels = (a->num_outputs + Q_OUTPUTS - 1) / Q_OUTPUTS;
  q_f32 total[Q_ROWS] = {{0}};
  for (i64 part = 0; part < a->parts; ++part) {
    const i64 row = a->starts[part] + a->stride * first, offset = part * panels + panel;
    const f32 *range = a->ranges + 2 * row;
    const q_s32 sums = ((const q_s32_anywhere *)a->sums)[offset];
    q_s32 sum[Q_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < count; ++r)
      sum[r] = sums * ((dot == q_fast8 ? Q_OFFSET : 0) - (s32)range[2 * a->stride * r + 1]);
    q_sums(sum, a->rows + row * bytes, a->stride * bytes,
           (const q_s32_anywhere *)a->weights + offset * (bytes / 4), bytes, count, dot);
#pragma GCC unroll 8
    for (int r = 0; r < count; ++r, range += 2 * a->stride)
      total[r] += __builtin_convertvector(sum[r], q_f32) * range[0];
  }
  const i64 at = panel * Q_OUTPUTS, size = NN_LEAST(a->num_outputs - at, Q_OUTPUTS), stride = a->out_stride;
  const f32 *const scales = a->scales + at, *const biases = a->bias ? a->bias + at : NULL;
  const int whole = size == Q_OUTPUTS;
  const q_f32 scale = whole ? (q_f32)*(const q_f32_anywhere *)scales : q_first(scales, size);
  const q_f32 bias = whole && biases ? (q_f32)*(const q_f32_anywhere *)biases : q_first(biases, size);
  f32 *out = a->out + first * stride + at;
#pragma GCC unroll 8
  for (int r = 0; r < count; ++r, out += stride) {
    q_f32 value = total[r] * scale + bias;
    if (!whole)
      q_store_first(out, value, size, a->adds);
    else {
      if (a->adds) value += *(const q_f32_anywhere *)out;
      *(q_f32_anywhere *)out = value;
    }
  }
}

/* Rows [first, end), `most` at a time. The weights of a block of outputs stay in the L2 cache while all rows pass, and
   8 rows in the L1 cache. */
Q_INLINE void q_rows(const integer_affine_arguments *a, i64 first, i64 end, q_dot *const dot, int most) {
  const i64 panels = (a->num_outputs + Q_OUTPUTS - 1) / Q_OUTPUTS;
  const i64 block = Q_BLOCK_BYTES / (a->parts * a->row_bytes * Q_OUTPUTS) + 1;
  for (i64 begin = 0; begin < panels; begin += block) {
    const i64 last = NN_LEAST(begin + block, panels);
    i64 row = first, panel;
    for (; most >= 8 && row + 8 <= end; row += 8)
      for (panel = begin; panel < last; ++panel) q_tile(a, row, panel, 8, dot);
    for (; most >= 4 && row + 4 <= end; row += 4)
      for (panel = begin; panel < last; ++panel) q_tile(a, row, panel, 4, dot);
    for (; row < end; ++row)
      for (panel = begin; panel < last; ++panel) q_tile(a, row, panel, 1, dot);
  }
}

/* Steps are rows of the output, Q_ROWS at a time. The path for tests takes rows one by one, because
   each number of rows costs half a second of compiling. */
void integer_affine(const integer_affine_arguments *a, i64 begin, i64 end) {
  const i64 first = begin * Q_ROWS, last = NN_LEAST(end * Q_ROWS, a->num_rows);
  if (a->is_plain) { if (a->is_wide) q_rows(a, first, last, q_plain16, 1); else q_rows(a, first, last, q_plain8, 1); }
  else { if (a->is_wide) q_rows(a, first, last, q_fast16, 8); else q_rows(a, first, last, q_fast8, 8); }
}

#pragma GCC pop_options

typedef struct {
  u8 *out;
  f32 *ranges;         /* (rows, 2) */
  const f32 *src;
  i64 size, src_stride, row_bytes, is_wide;
  f64 levels;
  const f32 *limits;   /* the least and largest value, or NULL: those of each row */
} quantize_rows_arguments;

/* The quantized numbers of `size` floats, in 2^23 + 2^22 + q. So the low bits are those of q. */
Q_INLINE u32 q_number(f32 x, f32 inverse, f32 zero, f32 levels) {
  const f32 y = x * inverse + zero, below = y < levels ? y : levels;
  return nn_bits_of((below > 0.0f ? below : 0.0f) + 12582912.0f);
}

void quantize_rows(const quantize_rows_arguments *a, i64 begin, i64 end) {
  const f32 levels = (f32)a->levels;
  const i64 size = a->size, padding = a->row_bytes - (a->is_wide ? 2 : 1) * size;
  for (i64 r = begin; r < end; ++r) {
    const f32 *const x = a->src + r * a->src_stride;
    u8 *const out = a->out + r * a->row_bytes;
    f32 low = 0.0f, high = 0.0f, probe = 0.0f; /* the probe is NaN if a number is not finite */
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : probe)
    for (i64 k = 0; k < size; ++k) {
      low = x[k] < low ? x[k] : low;
      high = x[k] > high ? x[k] : high;
      probe += x[k] * 0.0f;
    }
    if (a->limits) { low = a->limits[0]; high = a->limits[1]; }
    const f32 extent = high - low, inverse = extent > 1e-30f ? levels / extent : 0.0f;
    const f32 zero = (f32)(q_number(-low, inverse, 0.0f, levels) & 0xffff);
    if (a->is_wide) {
      int16_t *const wide = (int16_t *)out;
      for (i64 k = 0; k < size; ++k) wide[k] = (int16_t)q_number(x[k], inverse, zero, levels);
    } else
      for (i64 k = 0; k < size; ++k) out[k] = (u8)q_number(x[k], inverse, zero, levels);
    memset(out + a->row_bytes - padding, 0, padding);
    a->ranges[2 * r] = extent / levels + probe;
    a->ranges[2 * r + 1] = zero;
  }
}
