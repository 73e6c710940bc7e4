// What a kernel source may use of CUDA, on the host. No standard header: they take long to compile.
#define __global__
#define __grid_constant__
#define __device__
#define __forceinline__ inline
#define __shared__ static __attribute__((section("nnshared")))
#define __restrict__
#define __launch_bounds__(...)
struct Index { unsigned x, y, z; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
typedef _Float16 __half;
extern "C" {
extern Index threadIdx, blockIdx, blockDim, gridDim;
extern void* nn_dynamic_shared;
void nn_barrier();
void nn_warp_barrier();
double nn_exchange(double, int);
int nn_lane();
#define NN_DECLARE(name) double name(double); float name##f(float);
NN_DECLARE(exp) NN_DECLARE(log) NN_DECLARE(sin) NN_DECLARE(cos) NN_DECLARE(tanh) NN_DECLARE(erf)
NN_DECLARE(sqrt) NN_DECLARE(rint) NN_DECLARE(floor) NN_DECLARE(ceil) NN_DECLARE(fabs)
NN_DECLARE(log1p)
double pow(double, double); float powf(float, float);
double fmax(double, double); float fmaxf(float, float);
double fmin(double, double); float fminf(float, float);
}
static inline float exp(float a) { return expf(a); }
static inline float log(float a) { return logf(a); }
static inline float sqrt(float a) { return sqrtf(a); }
static inline float rint(float a) { return rintf(a); }
static inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __half2float(__half h) { return (float)h; }
static inline __half __float2half(float f) { return (__half)f; }
static inline float __int_as_float(unsigned i) { float f; __builtin_memcpy(&f, &i, 4); return f; }
static inline unsigned __float_as_uint(float f) { unsigned i; __builtin_memcpy(&i, &f, 4); return i; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline void __syncthreads() { nn_barrier(); }
static inline void __syncwarp(unsigned = ~0u) { nn_warp_barrier(); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
// blocks and threads run one at a time
template <typename T> static inline T atomicAdd(T* p, T v) { const T old = *p; *p = old + v; return old; }
template <typename T> static inline T atomicExch(T* p, T v) { const T old = *p; *p = v; return old; }
static inline unsigned atomicInc(unsigned* p, unsigned most) { const unsigned old = *p; *p = old >= most ? 0 : old + 1; return old; }
template <typename T> static inline T __shfl_down_sync(unsigned, T v, int d) { return (T)nn_exchange((double)v, nn_lane() + d); }
template <typename T> static inline T __shfl_xor_sync(unsigned, T v, int d) { return (T)nn_exchange((double)v, nn_lane() ^ d); }
template <typename T> static inline T __shfl_sync(unsigned, T v, int lane) { return (T)nn_exchange((double)v, lane); }
template <typename T> static inline T __ldg(const T* p) { return *p; }
static inline double __longlong_as_double(long long i) { double d; __builtin_memcpy(&d, &i, 8); return d; }
