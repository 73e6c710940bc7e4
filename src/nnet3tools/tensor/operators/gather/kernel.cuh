// Picking by index arrays along an axis, which is the last of four here. Sums are made by the thread
// that owns the result, which looks at all indexes: slower than atomics for long axes, but the same
// every time.

// out[k] = src[at[.., k]], or `outside` for an index beyond `count`.
template <typename T>
__device__ void gather(
    long long a, long long b, long long c, long long k, View<T, 4> out, View<const T, 4> src,
    View<const int, 4> at, long long count, T outside) {
  const long long i = at(a, b, c, k);
  out(a, b, c, k) = i >= 0 && i < count ? src(a, b, c, i) : outside;
}

// out[k] += the sum of src[i] with at[.., i] == k.
template <typename T>
__device__ void add_gathered(
    long long a, long long b, long long c, long long k, View<T, 4> out, View<const T, 4> src,
    View<const int, 4> at, long long count) {
  T sum = 0;
  for (long long i = 0; i < count; ++i)
    if (at(a, b, c, i) == k) sum += src(a, b, c, i);
  out(a, b, c, k) += sum;
}

// out[at[.., k]] = src[k] unless the index is beyond `count`.
template <typename T>
__device__ void scatter(
    long long a, long long b, long long c, long long k, View<T, 4> out, View<const T, 4> src,
    View<const int, 4> at, long long count) {
  const long long i = at(a, b, c, k);
  if (i >= 0 && i < count) out(a, b, c, i) = src(a, b, c, k);
}
