// Products of a sparse matrix S, in compressed rows, and a dense one: a thread for each element of out.

// out = beta * out + S b: row r of S has the entries k with offsets[r] <= k < offsets[r + 1].
template <typename T>
__device__ void csr_dot(
    long long r, long long c, View<T, 2> out, View<const T, 1> values, View<const T, 2> b,
    View<const int, 1> columns, View<const int, 1> offsets, T beta) {
  T sum = 0;
  for (long long k = offsets(r); k < offsets(r + 1); ++k) sum += values(k) * b(columns(k), c);
  out(r, c) = beta == T(0) ? sum : sum + beta * out(r, c);
}

// out = beta * out + S' b: column r of S has the entries order[k] with offsets[r] <= k < offsets[r + 1].
template <typename T>
__device__ void csr_dot_transposed(
    long long r, long long c, View<T, 2> out, View<const T, 1> values, View<const T, 2> b,
    View<const int, 1> rows, View<const int, 1> offsets, View<const int, 1> order, T beta) {
  T sum = 0;
  for (long long k = offsets(r); k < offsets(r + 1); ++k) sum += values(order(k)) * b(rows(k), c);
  out(r, c) = beta == T(0) ? sum : sum + beta * out(r, c);
}
