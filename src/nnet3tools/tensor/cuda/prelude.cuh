// Helper functions and reductions that generated kernels use; stands once before them.
#define NN_INLINE __device__ __forceinline__
template <typename T> static NN_INLINE T nn_max(T a, T b) { return a > b || a != a ? a : b; }
template <typename T> static NN_INLINE T nn_min(T a, T b) { return a < b || a != a ? a : b; }
template <typename T> static NN_INLINE T nn_sgn(T a) { return a > T(0) ? T(1) : (a < T(0) ? T(-1) : a); }
template <typename T> static NN_INLINE T nn_abs(T a) { return a < T(0) ? -a : a; }
static NN_INLINE float nn_abs(float a) { return fabsf(a); }
static NN_INLINE double nn_abs(double a) { return fabs(a); }
template <typename T> static NN_INLINE T nn_sigmoid(T a) { return T(1) / (T(1) + exp(-a)); }
template <typename T> static NN_INLINE T nn_logaddexp(T a, T b)
{ T top = nn_max(a, b); return a == b ? top + T(0.69314718055994531) : top + log1p(exp(-nn_abs(a - b))); }
// An array of N axes with any strides, in elements. Where an address is expected, it is that of the
// first element.
template <typename T, int N> struct View {
  T* first;
  long long strides[N];
  template <typename... I> NN_INLINE T& operator()(I... indexes) const {
    const long long at[] = {(long long)indexes...};
    long long offset = 0;
    #pragma unroll
    for (int k = 0; k < N; ++k) offset += at[k] * strides[k];
    return first[offset];
  }
  NN_INLINE operator T*() const { return first; }
};
// A reduction that starts at START and joins its result a with a value v by JOINED.
#define NN_REDUCTION(NAME, START, JOINED) \
  template <typename T> struct NAME { \
    T a; \
    NN_INLINE void init() { a = START; } \
    NN_INLINE void add(T v) { a = JOINED; } \
    NN_INLINE void merge(NAME o) { add(o.a); } \
    NN_INLINE NAME down(int d) { NAME o; o.a = __shfl_down_sync(0xffffffffu, a, d); return o; } \
    NN_INLINE T value() { return a; } \
  };
NN_REDUCTION(nn_Sum, T(0), a + v)
NN_REDUCTION(nn_Prod, T(1), a * v)
NN_REDUCTION(nn_Max, -T(__int_as_float(0x7f800000)), nn_max(a, v))
NN_REDUCTION(nn_Min, T(__int_as_float(0x7f800000)), nn_min(a, v))
// a: the largest so far, kept finite lest inf - inf be nan; b: the sum of exp of what lies below it
template <typename T> struct nn_LogSumExp {
  T a, b;
  NN_INLINE void init() { a = T(-3.4028235e38f); b = T(0); }
  NN_INLINE void add(T v) {
    T top = v > a ? (v < T(3.4028235e38f) ? v : T(3.4028235e38f)) : a;
    b = b * exp(a - top) + exp(v - top);
    a = top;
  }
  NN_INLINE void merge(nn_LogSumExp o) {
    T top = o.a > a ? o.a : a;
    b = b * exp(a - top) + o.b * exp(o.a - top);
    a = top;
  }
  NN_INLINE nn_LogSumExp down(int d) {
    nn_LogSumExp o;
    o.a = __shfl_down_sync(0xffffffffu, a, d);
    o.b = __shfl_down_sync(0xffffffffu, b, d);
    return o;
  }
  NN_INLINE T value() { return a + log(b); }
};
// Whether a value at a place comes before another in order: NaN last, equal ones by place.
static NN_INLINE bool nn_before(double v, long long i, double w, long long j)
{ return v < w || (v == v && w != w) || ((v == w || (v != v && w != w)) && i < j); }
// The first in order of values and their places; place -1: none yet
struct nn_First {
  double a;
  long long at;
  NN_INLINE void init() { a = 0.0; at = -1; }
  NN_INLINE void add(double v, long long i)
  { if (at < 0 || nn_before(v, i, a, at)) { a = v; at = i; } }
  NN_INLINE void merge(nn_First o) { if (o.at >= 0) add(o.a, o.at); }
  NN_INLINE nn_First down(int d) {
    nn_First o;
    o.a = __shfl_down_sync(0xffffffffu, a, d);
    o.at = __shfl_down_sync(0xffffffffu, at, d);
    return o;
  }
};
template <typename R> static NN_INLINE R nn_warp(R acc)
{ for (int d = 16; d > 0; d >>= 1) acc.merge(acc.down(d)); return acc; }
// The reduction over a block of (x, 1): every thread gets it. `part` is shared, of one place more than
// the block has warps.
template <typename R, int N> static NN_INLINE R nn_block(R acc, R (&part)[N])
{
  acc = nn_warp(acc);
  // Called again with the same `part` it needs no barrier here: who writes the result then has met
  // all others at the first one below, after they have read it.
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = acc;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < (blockDim.x + 31) / 32; ++w) acc.merge(part[w]);
    part[N - 1] = acc;
  }
  __syncthreads();
  return part[N - 1];
}
// The reduction over the 8 threads (x, .) of a block of (32, 8), for each x: y = 0 gets it.
template <typename R> static NN_INLINE R nn_columns(R acc, R (*part)[33], int x, int y)
{
  // Needed where a block comes here again with the same `part`: the last sums may not be read yet.
  __syncthreads();
  part[y][x] = acc;
  __syncthreads();
  if (y == 0)
    for (int other = 1; other < 8; ++other) acc.merge(part[other][x]);
  return acc;
}
// Whether this is the last of `blocks` blocks to come here: it sees all that they have written so
// far. `ticket` is 0 before and after; one thread is `first`; `answer` is shared.
static NN_INLINE bool nn_is_last(unsigned* ticket, unsigned blocks, bool first, bool* answer)
{
  // Needed between blocks: what all threads of this one have written goes before its ticket.
  __syncthreads();
  if (first) {
    __threadfence();
    *answer = atomicAdd(ticket, 1u) == blocks - 1;
    if (*answer) *ticket = 0;
    __threadfence();
  }
  __syncthreads();
  return *answer;
}
// Philox 4x32-10 (Salmon et al. 2011): the first two random words of element `at` of an array.
static NN_INLINE void nn_philox(
    unsigned long long at, unsigned key, unsigned array, unsigned* first, unsigned* second) {
  unsigned w0 = (unsigned)at, w1 = (unsigned)(at >> 32), w2 = array, w3 = 0u;
  unsigned k0 = key, k1 = 0x5eedu;
  for (int round = 0; round < 10; ++round) {
    const unsigned h0 = __umulhi(0xD2511F53u, w0), l0 = 0xD2511F53u * w0;
    const unsigned h1 = __umulhi(0xCD9E8D57u, w2), l1 = 0xCD9E8D57u * w2;
    w0 = h1 ^ w1 ^ k0; w1 = l1; w2 = h0 ^ w3 ^ k1; w3 = l0;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  *first = w0;
  *second = w1;
}
// Where a kernel's function runs when it is part of a fused level (level_source.py).
struct nn_Three { unsigned x, y, z; };
struct nn_Place { nn_Three at, of, thread, threads; };
// The table of a fused level as a parameter of its kernel.
template <int N> struct nn_Words { long long at[N]; };
