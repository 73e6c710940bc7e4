// Philox 4x32-10 (Salmon et al. 2011): one counter an element. state: the key, the array's number.

// 24 random bits an element, in (0, 1].
template <typename T>
__device__ void uniform(
    long long a, long long b, long long c, View<T, 3> out, View<const unsigned, 1> state) {
  const unsigned long long at = ((a * n_b + b) * n_c + c);
  unsigned w0 = (unsigned)at, w1 = (unsigned)(at >> 32), w2 = state(1), w3 = 0u;
  unsigned k0 = state(0), k1 = 0x5eedu;
  for (int round = 0; round < 10; ++round) {
    const unsigned h0 = __umulhi(0xD2511F53u, w0), l0 = 0xD2511F53u * w0;
    const unsigned h1 = __umulhi(0xCD9E8D57u, w2), l1 = 0xCD9E8D57u * w2;
    w0 = h1 ^ w1 ^ k0; w1 = l1; w2 = h0 ^ w3 ^ k1; w3 = l0;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  const float u = ((w0 >> 8) + 1u) * 5.9604645e-08f;
  out(a, b, c) = (T)u;
}

// Box and Muller's transform, one of each pair.
template <typename T>
__device__ void normal(
    long long a, long long b, long long c, View<T, 3> out, View<const unsigned, 1> state) {
  const unsigned long long at = ((a * n_b + b) * n_c + c);
  unsigned w0 = (unsigned)at, w1 = (unsigned)(at >> 32), w2 = state(1), w3 = 0u;
  unsigned k0 = state(0), k1 = 0x5eedu;
  for (int round = 0; round < 10; ++round) {
    const unsigned h0 = __umulhi(0xD2511F53u, w0), l0 = 0xD2511F53u * w0;
    const unsigned h1 = __umulhi(0xCD9E8D57u, w2), l1 = 0xCD9E8D57u * w2;
    w0 = h1 ^ w1 ^ k0; w1 = l1; w2 = h0 ^ w3 ^ k1; w3 = l0;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  const float u = ((w0 >> 8) + 1u) * 5.9604645e-08f;
  const float v = ((w1 >> 8) + 1u) * 5.9604645e-08f;
  out(a, b, c) = (T)(sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v));
}
