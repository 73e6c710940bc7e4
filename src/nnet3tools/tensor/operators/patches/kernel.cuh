// Patches of frames.

// Element f of place k of the patch at height h.
template <typename T>
__device__ void gather_patches(
    long long r, long long h, long long k, long long f, View<T, 4> out, View<const T, 3> frames,
    View<const int, 2> pieces) {
  const long long begin = pieces(k, 0), end = pieces(k, 1);
  const long long from = pieces(k, 2) + (h - begin) * pieces(k, 3);
  out(r, h, k, f) = h >= begin && h < end ? frames(r, from, f) : T(0);
}

// Each element of the frames sums what was gathered from it, in order.
template <typename T>
__device__ void add_patches(
    long long r, long long g, long long f, View<T, 3> frames, View<const T, 4> patches,
    View<const int, 2> pieces, long long places) {
  T sum = 0;
  for (long long k = 0; k < places; ++k) {
    const long long begin = pieces(k, 0), gap = g - pieces(k, 2), step = pieces(k, 3);
    const long long h = begin + gap / step;
    if (gap % step == 0 && h >= begin && h < pieces(k, 1)) sum += patches(r, h, k, f);
  }
  frames(r, g, f) += sum;
}
