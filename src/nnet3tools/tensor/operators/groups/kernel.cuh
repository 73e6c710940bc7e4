// Groups of neighbouring columns.

// out[r, j] = the sum of x[r, begin:end], ranges[j] being (begin, end).
template <typename T>
__device__ void sum_column_ranges(
    long long r, long long j, View<T, 2> out, View<const T, 2> x, View<const int, 2> ranges) {
  T sum = 0;
  for (long long c = ranges(j, 0); c < ranges(j, 1); ++c) sum += x(r, c);
  out(r, j) = sum;
}
