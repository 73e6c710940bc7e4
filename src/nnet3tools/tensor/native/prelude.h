/* What every file of kernels begins with: types, and functions that C has not, or only as calls
   which no compiler turns into vector instructions. Error bounds are of the whole range. */
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

#define NN_MOST(a, b) ((a) > (b) ? (a) : (b))
#define NN_LEAST(a, b) ((a) < (b) ? (a) : (b))
#ifdef __FMA__
#define NN_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define NN_FMA(a, b, c) ((a) * (b) + (c))
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

/* 4^k times a polynomial of what is left, |r| <= log(2); the fit is good to 1e-08. The power is
   applied as two factors of 2^k, whose bits are the low ones of the sum that rounds: so results
   below the least normal number are right, too. */
static inline f32 nn_expf(f32 x) {
  const f32 size = fabsf(x); /* one bound for both signs: half the comparisons of two */
  const f32 c = copysignf(size > 104.0f ? 104.0f : size, x);
  const f32 sum = NN_FMA(c, 0.72134752f, 12583039.0f); /* 1.5 * 2^23 + 127 */
  const f32 k = sum - 12583039.0f;
  f32 r = NN_FMA(k, -1.38671875f, c);
  r = NN_FMA(k, 4.2438888e-4f, r);
  f32 q = NN_FMA(0.00019611344659451689f, r, 0.0014104676891807735f);
  q = NN_FMA(q, r, 0.008336108842584719f);
  q = NN_FMA(q, r, 0.04166125824645653f);
  q = NN_FMA(q, r, 0.16666613990222215f);
  q = NN_FMA(q, r, 0.5000003473201748f);
  const f32 p = NN_FMA(q * r, r, r) + 1.0f;
  const f32 power = nn_float_of(nn_bits_of(sum) << 23);
  return p * power * power;
}

static inline f32 nn_sigmoidf(f32 x) { return 1.0f / (1.0f + nn_expf(-x)); }
static inline f64 nn_sigmoid(f64 x) { return 1.0 / (1.0 + exp(-x)); }

/* Near 0 an odd polynomial (to 5e-9), else by exp. */
static inline f32 nn_tanhf(f32 x) {
  const f32 size = fabsf(x), z = x * x;
  f32 q = NN_FMA(-5.603913791791608e-3f, z, 2.055171920364023e-2f);
  q = NN_FMA(q, z, -5.37141072833691e-2f);
  q = NN_FMA(q, z, 0.133311528066682f);
  q = NN_FMA(q, z, -0.33333272082792403f);
  const f32 near = NN_FMA(q * z, x, x);
  const f32 far = copysignf(1.0f - 2.0f / (nn_expf(2.0f * size) + 1.0f), x);
  return size < 0.625f ? near : size != size ? x : far;
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
