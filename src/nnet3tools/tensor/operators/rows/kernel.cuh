// Moves of rows and columns: a thread for each element that is written.

// out[r] = src[at[r]], or 0 where the index is -1.
template <typename T>
__device__ void copy_rows(
    long long r, long long c, View<T, 2> out, View<const T, 2> src, View<const int, 1> at) {
  const int s = at(r);
  out(r, c) = s < 0 ? T(0) : src(s, c);
}

// out[r] += alpha * src[at[r]] unless the index is -1.
template <typename T>
__device__ void add_rows(
    long long r, long long c, View<T, 2> out, View<const T, 2> src, View<const int, 1> at,
    T alpha) {
  const int s = at(r);
  if (s >= 0) out(r, c) += alpha * src(s, c);
}

// out[:, c] = src[:, at[c]], or 0 where the index is -1.
template <typename T>
__device__ void copy_cols(
    long long r, long long c, View<T, 2> out, View<const T, 2> src, View<const int, 1> at) {
  const int s = at(c);
  out(r, c) = s < 0 ? T(0) : src(r, s);
}

// out[r] += alpha * the sum of src[begin:end], ranges[r] being (begin, end); in order.
template <typename T>
__device__ void add_row_ranges(
    long long r, long long c, View<T, 2> out, View<const T, 2> src, View<const int, 2> ranges,
    T alpha) {
  const long long begin = ranges(r, 0), end = ranges(r, 1);
  if (end > begin) {
    T sum = 0;
    for (long long s = begin; s < end; ++s) sum += src(s, c);
    out(r, c) += alpha * sum;
  }
}

// matrix[r] = the row at[r] of the other matrix which[r], or 0. A row of `table` has the address of
// another matrix and its two strides.
template <typename T>
__device__ void copy_rows_multi(
    long long r, long long c, View<T, 2> matrix, const long long* table,
    View<const int, 1> which, View<const int, 1> at) {
  const int w = which(r);
  const long long* m = table + (w < 0 ? 0 : w) * 3;
  const T* const from = (const T*)m[0] + at(r) * m[1] + c * m[2];
  matrix(r, c) = w < 0 ? T(0) : *from;
}

// matrix[r] += alpha * the row at[r] of the other matrix which[r].
template <typename T>
__device__ void add_rows_multi(
    long long r, long long c, View<T, 2> matrix, const long long* table,
    View<const int, 1> which, View<const int, 1> at, T alpha) {
  const int w = which(r);
  const long long* m = table + (w < 0 ? 0 : w) * 3;
  const T* const from = (const T*)m[0] + at(r) * m[1] + c * m[2];
  if (w >= 0) matrix(r, c) += alpha * *from;
}

// The row at[r] of the other matrix which[r] = matrix[r]; no row twice.
template <typename T>
__device__ void copy_to_rows_multi(
    long long r, long long c, View<const T, 2> matrix, const long long* table,
    View<const int, 1> which, View<const int, 1> at) {
  const int w = which(r);
  if (w >= 0) {
    const long long* m = table + w * 3;
    ((T*)m[0])[at(r) * m[1] + c * m[2]] = matrix(r, c);
  }
}

// The row at[r] of matrix which[r] += alpha * the sum of its rows of src, in order: these are
// src[order[k]] for offsets[r] <= k < offsets[r + 1].
template <typename T>
__device__ void add_to_rows_multi(
    long long r, long long c, View<const T, 2> src, const long long* table,
    View<const int, 1> which, View<const int, 1> at, View<const int, 1> offsets,
    View<const int, 1> order, T alpha) {
  const long long* m = table + which(r) * 3;
  T sum = 0;
  for (long long k = offsets(r); k < offsets(r + 1); ++k) sum += src(order(k), c);
  ((T*)m[0])[at(r) * m[1] + c * m[2]] += alpha * sum;
}
