// Single elements of a matrix.

// out[rows[k], cols[k]] = values[k] unless the row is -1.
template <typename T>
__device__ void set_elements(
    long long k, View<T, 2> out, View<const int, 1> rows, View<const int, 1> cols,
    View<const T, 1> values) {
  if (rows(k) >= 0) out(rows(k), cols(k)) = values(k);
}

// result = the sum of a[rows[k], cols[k]] * values[k], by one block.
template <typename T>
__device__ void dot_elements(
    long long one, View<const T, 2> a, View<double, 1> result, View<const int, 1> rows,
    View<const int, 1> cols, View<const T, 1> values, long long count) {
  __shared__ nn_Sum<double> part[9];
  nn_Sum<double> acc; acc.init();
  for (long long k = threadIdx.x; k < count; k += blockDim.x)
    if (rows(k) >= 0) acc.add((double)a(rows(k), cols(k)) * (double)values(k));
  acc = nn_block(acc, part);
  if (threadIdx.x == 0) result(one) = acc.a;
}
