// Matrices as small integers.

// out = src * scale, rounded to the nearest integer from low to high.
template <typename T, typename X>
__device__ void compress(
    long long r, long long c, View<T, 2> out, View<const X, 2> src, X scale, X low, X high) {
  out(r, c) = (T)nn_max(low, nn_min(high, rint(src(r, c) * scale)));
}

// out = the sign of src, from low to high.
template <typename T, typename X>
__device__ void compress_signs(
    long long r, long long c, View<T, 2> out, View<const X, 2> src, X low, X high) {
  out(r, c) = (T)nn_max(low, nn_min(high, nn_sgn(src(r, c))));
}

// out = src * scale.
template <typename T, typename X>
__device__ void decompress(
    long long r, long long c, View<T, 2> out, View<const X, 2> src, T scale) {
  out(r, c) = src(r, c) * scale;
}
