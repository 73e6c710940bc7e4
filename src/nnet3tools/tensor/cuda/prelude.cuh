// Helper functions and reductions that generated kernels use; stands once before them.
static __device__ __forceinline__ float nn_max(float a, float b) { return a > b || a != a ? a : b; }
static __device__ __forceinline__ double nn_max(double a, double b) { return a > b || a != a ? a : b; }
static __device__ __forceinline__ int nn_max(int a, int b) { return a > b ? a : b; }
static __device__ __forceinline__ unsigned nn_max(unsigned a, unsigned b) { return a > b ? a : b; }
static __device__ __forceinline__ long long nn_max(long long a, long long b) { return a > b ? a : b; }
static __device__ __forceinline__ float nn_min(float a, float b) { return a < b || a != a ? a : b; }
static __device__ __forceinline__ double nn_min(double a, double b) { return a < b || a != a ? a : b; }
static __device__ __forceinline__ int nn_min(int a, int b) { return a < b ? a : b; }
static __device__ __forceinline__ unsigned nn_min(unsigned a, unsigned b) { return a < b ? a : b; }
static __device__ __forceinline__ long long nn_min(long long a, long long b) { return a < b ? a : b; }
template <typename T> static __device__ __forceinline__ T nn_sgn(T a)
{ return a > T(0) ? T(1) : (a < T(0) ? T(-1) : a); }
template <typename T> static __device__ __forceinline__ T nn_abs(T a) { return a < T(0) ? -a : a; }
static __device__ __forceinline__ unsigned nn_abs(unsigned a) { return a; }
static __device__ __forceinline__ float nn_abs(float a) { return fabsf(a); }
static __device__ __forceinline__ double nn_abs(double a) { return fabs(a); }
static __device__ __forceinline__ float nn_sigmoid(float a) { return 1.0f / (1.0f + expf(-a)); }
static __device__ __forceinline__ double nn_sigmoid(double a) { return 1.0 / (1.0 + exp(-a)); }
static __device__ __forceinline__ float nn_logaddexp(float a, float b)
{ float top = nn_max(a, b); float gap = fabsf(a - b); return a == b ? top + 0.693147181f : top + log1pf(expf(-gap)); }
static __device__ __forceinline__ double nn_logaddexp(double a, double b)
{ double top = nn_max(a, b); double gap = fabs(a - b); return a == b ? top + 0.69314718055994531 : top + log1p(exp(-gap)); }
// An array of N axes with any strides, in elements. Where an address is expected, it is that of the
// first element.
template <typename T, int N> struct View {
  T* first;
  long long strides[N];
  template <typename... I> __device__ __forceinline__ T& operator()(I... indexes) const {
    const long long at[] = {(long long)indexes...};
    long long offset = 0;
    #pragma unroll
    for (int k = 0; k < N; ++k) offset += at[k] * strides[k];
    return first[offset];
  }
  __device__ __forceinline__ operator T*() const { return first; }
};
template <typename T> struct nn_Sum {
  T a;
  __device__ __forceinline__ void init() { a = T(0); }
  __device__ __forceinline__ void add(T v) { a += v; }
  __device__ __forceinline__ void merge(nn_Sum o) { a += o.a; }
  __device__ __forceinline__ nn_Sum down(int d) { nn_Sum o; o.a = __shfl_down_sync(0xffffffffu, a, d); return o; }
  __device__ __forceinline__ T value() { return a; }
};
template <typename T> struct nn_Prod {
  T a;
  __device__ __forceinline__ void init() { a = T(1); }
  __device__ __forceinline__ void add(T v) { a *= v; }
  __device__ __forceinline__ void merge(nn_Prod o) { a *= o.a; }
  __device__ __forceinline__ nn_Prod down(int d) { nn_Prod o; o.a = __shfl_down_sync(0xffffffffu, a, d); return o; }
  __device__ __forceinline__ T value() { return a; }
};
template <typename T> struct nn_Max {
  T a;
  __device__ __forceinline__ void init() { a = -T(__int_as_float(0x7f800000)); }
  __device__ __forceinline__ void add(T v) { a = nn_max(a, v); }
  __device__ __forceinline__ void merge(nn_Max o) { a = nn_max(a, o.a); }
  __device__ __forceinline__ nn_Max down(int d) { nn_Max o; o.a = __shfl_down_sync(0xffffffffu, a, d); return o; }
  __device__ __forceinline__ T value() { return a; }
};
template <typename T> struct nn_Min {
  T a;
  __device__ __forceinline__ void init() { a = T(__int_as_float(0x7f800000)); }
  __device__ __forceinline__ void add(T v) { a = nn_min(a, v); }
  __device__ __forceinline__ void merge(nn_Min o) { a = nn_min(a, o.a); }
  __device__ __forceinline__ nn_Min down(int d) { nn_Min o; o.a = __shfl_down_sync(0xffffffffu, a, d); return o; }
  __device__ __forceinline__ T value() { return a; }
};
// a: the largest so far, kept finite lest inf - inf be nan; b: the sum of exp of what lies below it
template <typename T> struct nn_LogSumExp {
  T a, b;
  __device__ __forceinline__ void init() { a = T(-3.4028235e38f); b = T(0); }
  __device__ __forceinline__ void add(T v) {
    T top = v > a ? (v < T(3.4028235e38f) ? v : T(3.4028235e38f)) : a;
    b = b * exp(a - top) + exp(v - top);
    a = top;
  }
  __device__ __forceinline__ void merge(nn_LogSumExp o) {
    T top = o.a > a ? o.a : a;
    b = b * exp(a - top) + o.b * exp(o.a - top);
    a = top;
  }
  __device__ __forceinline__ nn_LogSumExp down(int d) {
    nn_LogSumExp o;
    o.a = __shfl_down_sync(0xffffffffu, a, d);
    o.b = __shfl_down_sync(0xffffffffu, b, d);
    return o;
  }
  __device__ __forceinline__ T value() { return a + log(b); }
};
// Whether a value at a place comes before another in order: NaN last, equal ones by place.
static __device__ __forceinline__ bool nn_before(double v, long long i, double w, long long j)
{ return v < w || (v == v && w != w) || ((v == w || (v != v && w != w)) && i < j); }
// The first in order of values and their places; place -1: none yet
struct nn_First {
  double a;
  long long at;
  __device__ __forceinline__ void init() { a = 0.0; at = -1; }
  __device__ __forceinline__ void add(double v, long long i)
  { if (at < 0 || nn_before(v, i, a, at)) { a = v; at = i; } }
  __device__ __forceinline__ void merge(nn_First o) { if (o.at >= 0) add(o.a, o.at); }
  __device__ __forceinline__ nn_First down(int d) {
    nn_First o;
    o.a = __shfl_down_sync(0xffffffffu, a, d);
    o.at = __shfl_down_sync(0xffffffffu, at, d);
    return o;
  }
};
template <typename R> static __device__ __forceinline__ R nn_warp(R acc)
{ for (int d = 16; d > 0; d >>= 1) acc.merge(acc.down(d)); return acc; }
// The reduction over a block of (x, 1): every thread gets it. `part` is shared, of one place more than
// the block has warps.
template <typename R, int N> static __device__ __forceinline__ R nn_block(R acc, R (&part)[N])
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
template <typename R> static __device__ __forceinline__ R nn_columns(R acc, R (*part)[33], int x, int y)
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
static __device__ __forceinline__ bool nn_is_last(unsigned* ticket, unsigned blocks, bool first, bool* answer)
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
static __device__ __forceinline__ void nn_philox(
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
