// Matrices as small integers.

// out = src * scale, rounded to the nearest integer from low to high; the sign of src if scale is 0.
template <typename T, typename X>
__device__ void compress(
    long long r, long long c, View<T, 2> out, View<const X, 2> src, X scale, X low, X high) {
  const auto value = scale == 0 ? nn_sgn(src(r, c)) : rint(src(r, c) * scale);
  out(r, c) = (T)nn_max(low, nn_min(high, value));
}

// out = src * scale.
template <typename T, typename X>
__device__ void decompress(
    long long r, long long c, View<T, 2> out, View<const X, 2> src, T scale) {
  out(r, c) = src(r, c) * scale;
}
