/* The beginning of every file of kernels: types, and functions that C lacks or that no compiler turns
   into vector instructions. Error bounds hold over the whole range. */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef int64_t i64;
typedef float f32;
typedef double f64;
typedef int32_t s32;
typedef uint32_t u32;
typedef unsigned char u8;
/* One argument of a kernel: an address, a size or stride (of elements), a number. */
typedef union { void *p; i64 i; f64 f; } word;
typedef void kernel(const word *w, i64 begin, i64 end);

/* The name of a function or struct in a file that is compiled for several types T. */
#define NN_JOINED(name, type) name##_##type
#define NN_JOIN(name, type) NN_JOINED(name, type)
#define TYPED(name) NN_JOIN(name, T)

#define NN_LEAST(a, b) ((a) < (b) ? (a) : (b))
#ifdef __FMA__
#define NN_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define NN_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* Keeps a vector in a register. GCC would read it from memory for each row of a product, which takes a
   third more time. */
#ifdef __AVX2__
#define NN_KEEP(vector) __asm__("" : "+x"(vector))
#else
#define NN_KEEP(vector) ((void)0)
#endif

static inline f32 nn_float_of(u32 bits) { f32 x; memcpy(&x, &bits, 4); return x; }
static inline u32 nn_bits_of(f32 x) { u32 bits; memcpy(&bits, &x, 4); return bits; }

/* NaN if either is. */
static inline f32 nn_maxf(f32 a, f32 b) { return a > b || a != a ? a : b; }
static inline f32 nn_minf(f32 a, f32 b) { return a < b || a != a ? a : b; }
static inline f64 nn_max(f64 a, f64 b) { return a > b || a != a ? a : b; }
static inline f64 nn_min(f64 a, f64 b) { return a < b || a != a ? a : b; }
static inline f32 nn_sgnf(f32 x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
static inline f64 nn_sgn(f64 x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x; }

/* exp(c) is power^2 times 1 more than what is returned, a polynomial of the rest |r| <= log(2); the
   fit is good to 1e-08. The power 2^k, which is applied twice, has its bits from the low ones of the
   sum that rounds: so results below the least normal number are right, too. */
static inline f32 nn_rest_of_expf(f32 c, f32 *power) {
  const f32 sum = NN_FMA(c, 0.72134752f, 12583039.0f); /* 1.5 * 2^23 + 127 */
  const f32 k = sum - 12583039.0f;
  f32 r = NN_FMA(k, -1.38671875f, c);
  r = NN_FMA(k, 4.2438888e-4f, r);
  f32 q = NN_FMA(0.00019611344659451689f, r, 0.0014104676891807735f);
  q = NN_FMA(q, r, 0.008336108842584719f);
  q = NN_FMA(q, r, 0.04166125824645653f);
  q = NN_FMA(q, r, 0.16666613990222215f);
  q = NN_FMA(q, r, 0.5000003473201748f);
  *power = nn_float_of(nn_bits_of(sum) << 23);
  return NN_FMA(q * r, r, r);
}

static inline f32 nn_expf(f32 x) {
  const f32 size = fabsf(x); /* one bound for both signs: half the comparisons of two */
  const f32 c = copysignf(size > 104.0f ? 104.0f : size, x);
  f32 power;
  const f32 p = nn_rest_of_expf(c, &power) + 1.0f;
  return p * power * power;
}

static inline f32 nn_sigmoidf(f32 x) { return 1.0f / (1.0f + nn_expf(-x)); }
static inline f64 nn_sigmoid(f64 x) { return 1.0 / (1.0 + exp(-x)); }

/* y / (y + 2) with y = exp(2 |x|) - 1, which is accurate near 0. */
static inline f32 nn_tanhf(f32 x) {
  const f32 size = fabsf(x);
  f32 power;
  const f32 p = nn_rest_of_expf(2.0f * (size > 10.0f ? 10.0f : size), &power);
  const f32 y = NN_FMA(power * power, p, power * power - 1.0f);
  return copysignf(y / (y + 2.0f), x);
}

/* x = m 2^k with m within sqrt(2) of 1, log m = 2 artanh((m - 1) / (m + 1)), to 1e-9. */
static inline f32 nn_logf(f32 x) {
  const f32 y = x < 1.17549435e-38f ? x * 8388608.0f : x; /* the least numbers, normalised */
  const u32 bits = nn_bits_of(y), above = bits - 0x3f3504f3u;
  const f32 k = (f32)((s32)above >> 23) - (x < 1.17549435e-38f ? 23.0f : 0.0f);
  const f32 m = nn_float_of((above & 0x007fffffu) + 0x3f3504f3u);
  const f32 s = (m - 1.0f) / (m + 1.0f), z = s * s;
  f32 q = NN_FMA(0.14939583968719036f, z, 0.19988643327554043f);
  q = NN_FMA(q, z, 0.33333389122457835f);
  const f32 rest = NN_FMA(k, -2.12194440e-4f, 2.0f * s * z * q);
  const f32 value = NN_FMA(k, 0.693359375f, 2.0f * s + rest);
  const f32 zero = x == 0.0f ? -INFINITY : NAN;
  return x > 0.0f ? (x > 3.40282347e38f ? x : value) : (x != x ? x : zero);
}

#define nn_exp exp
#define nn_log log
#define nn_tanh tanh
static inline f64 nn_logaddexp(f64 a, f64 b) {
  return a == b ? a + 0.69314718055994530942 : nn_max(a, b) + log1p(exp(-fabs(a - b)));
}

/* AVX-512 instructions that compilers do not find: rounding, scaling by powers of two, stores past the
   caches. Other processors use the functions above. */
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__GNUC__) && !defined(__clang__)
#define NN_WIDE 16
typedef f32 f32v __attribute__((vector_size(64)));
typedef f32 nn_anywhere __attribute__((vector_size(64), aligned(4), may_alias));
#define NN_INLINE static inline __attribute__((always_inline))
#define NN_FMAV(a, b, c) __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4)
#define NN_ALL(x) ((x) - (f32v){0})

NN_INLINE f32v nn_take(const f32 *p) { return *(const nn_anywhere *)p; }
NN_INLINE void nn_put(f32 *p, f32v x) { *(nn_anywhere *)p = x; }

/* 2^k times a polynomial of the rest, to 3e-9; least numbers, overflow and NaN as in nn_expf. */
NN_INLINE f32v nn_expv(f32v x) {
  const f32v none = {0}, most = NN_ALL(110.0f);
  const f32v below = __builtin_ia32_minps512_mask(most, x, none, -1, 4); /* the second if NaN */
  const f32v c = __builtin_ia32_maxps512_mask(-most, below, none, -1, 4);
  const f32v k = __builtin_ia32_rndscaleps_mask(c * 1.44269504f, 8, none, -1, 4);
  f32v r = NN_FMAV(k, NN_ALL(-0.693359375f), c);
  r = NN_FMAV(k, NN_ALL(2.12194440e-4f), r);
  f32v q = NN_FMAV(NN_ALL(0.0013814596459269524f), r, NN_ALL(0.0083687175065279f));
  q = NN_FMAV(q, r, NN_ALL(0.04166838899254799f));
  q = NN_FMAV(q, r, NN_ALL(0.1666652113199234f));
  q = NN_FMAV(q, r, NN_ALL(0.4999999403953552f));
  const f32v p = NN_FMAV(q * r, r, r) + 1.0f;
  return __builtin_ia32_scalefps512_mask(p, k, none, -1, 4);
}

NN_INLINE f32 nn_sum(f32v x) {
  typedef f32 half __attribute__((vector_size(32)));
  typedef f32 quarter __attribute__((vector_size(16)));
  const union { f32v all; half of[2]; } a = {x};
  const union { half all; quarter of[2]; } b = {a.of[0] + a.of[1]};
  const quarter c = b.of[0] + b.of[1];
  return (c[0] + c[2]) + (c[1] + c[3]);
}

/* Whether `count` numbers are stored faster past the caches. */
#define NN_IS_PAST(count) ((count) > (i64)1 << 23)
/* The number of floats before the next cache line. */
NN_INLINE i64 nn_before_line(const f32 *p) { return -((uintptr_t)p >> 2) & (NN_WIDE - 1); }
NN_INLINE void nn_put_some(f32 *p, f32v x, i64 count) {
  __builtin_ia32_storeups512_mask(p, x, (1u << count) - 1);
}
NN_INLINE void nn_stream(f32 *p, f32v x) { __builtin_ia32_movntps512(p, x); }
#define NN_FENCE() __builtin_ia32_sfence()
#else
#define NN_IS_PAST(count) 0
#define NN_FENCE() ((void)0)
#endif
