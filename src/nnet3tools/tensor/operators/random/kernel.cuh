// Random numbers by nn_philox (prelude.cuh). state: the key, the array's number.

// 24 random bits an element, in (0, 1].
template <typename T>
__device__ void uniform(
    long long a, long long b, long long c, View<T, 3> out, View<const unsigned, 1> state) {
  unsigned w0, w1;
  nn_philox((a * n_b + b) * n_c + c, state(0), state(1), &w0, &w1);
  out(a, b, c) = (T)(((w0 >> 8) + 1u) * 5.9604645e-08f);
}

// Box and Muller's transform, one of each pair.
template <typename T>
__device__ void normal(
    long long a, long long b, long long c, View<T, 3> out, View<const unsigned, 1> state) {
  unsigned w0, w1;
  nn_philox((a * n_b + b) * n_c + c, state(0), state(1), &w0, &w1);
  const float u = ((w0 >> 8) + 1u) * 5.9604645e-08f;
  const float v = ((w1 >> 8) + 1u) * 5.9604645e-08f;
  out(a, b, c) = (T)(sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v));
}
