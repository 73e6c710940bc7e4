// Order along an axis, which is the last of four here, and cumulative sums.

// The first `wanted` of `count` places in order, one after the other, by one block: each takes a look at
// the whole line. `sign` is -1 for descending order.
template <typename T, typename X>
__device__ void select_indexes(
    long long a, long long b, long long c, View<T, 4> out, View<const X, 4> x, double sign,
    long long wanted, long long count) {
  __shared__ nn_First part[9];
  nn_First last; last.init();
  for (long long k = 0; k < wanted; ++k) {
    nn_First next; next.init();
    for (long long i = threadIdx.x; i < count; i += blockDim.x) {
      const double value = sign * (double)x(a, b, c, i);
      if (last.at < 0 || nn_before(last.a, last.at, value, i)) next.add(value, i);
    }
    last = nn_block(next, part);
    if (threadIdx.x == 0) out(a, b, c, k) = (T)last.at;
  }
}

// Run h of SIZE places in order, by Batcher's bitonic network in shared memory.
template <typename T, typename X>
__device__ void sort_indexes(
    long long a, long long b, long long c, long long h, View<T, 4> out, View<const X, 4> x,
    double sign, long long wanted, long long count) {
  const int size = SIZE;
  __shared__ double value[SIZE];
  __shared__ int place[SIZE];
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    const long long k = h * size + i;
    value[i] = k < count ? sign * (double)x(a, b, c, k) : __longlong_as_double(0x7ff8000000000000LL);
    place[i] = (int)k;
  }
  for (int run = 2; run <= size; run *= 2)
    for (int gap = run / 2; gap > 0; gap /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < size / 2; i += blockDim.x) {
        const int low = i / gap * 2 * gap + i % gap, high = low + gap;
        const bool before = nn_before(value[high], place[high], value[low], place[low]);
        if (before == ((low & run) == 0)) {
          const double v = value[low]; value[low] = value[high]; value[high] = v;
          const int p = place[low]; place[low] = place[high]; place[high] = p;
        }
      }
    }
  __syncthreads();
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    const long long k = h * size + i;
    if (k < wanted && k < count) out(a, b, c, k) = (T)place[i];
  }
}

// Two neighbouring runs become one: place k finds by bisection where it goes.
template <typename T, typename X>
__device__ void merge_runs(
    long long a, long long b, long long c, long long k, View<T, 4> out, View<const X, 4> x,
    View<const int, 4> from, double sign, long long wanted, long long count, long long run) {
  const long long at = from(a, b, c, k);
  const double mine = sign * (double)x(a, b, c, at);
  const long long own = k / run * run, pair = own / (2 * run) * 2 * run;
  const long long other = own == pair ? own + run : pair;
  long long low = other < count ? other : count;
  long long high = other + run < count ? other + run : count;
  const long long begin = low;
  while (low < high) {  // the first of the other run that comes later
    const long long middle = (low + high) / 2, there = from(a, b, c, middle);
    if (nn_before(sign * (double)x(a, b, c, there), there, mine, at)) low = middle + 1;
    else high = middle;
  }
  const long long to = pair + (k - own) + (low - begin);
  if (to < wanted) out(a, b, c, to) = (T)at;
}

// out = beta * out + the sums of x up to each place; one thread for a line.
template <typename T>
__device__ void cumulative_sum(
    long long a, long long b, long long c, View<T, 4> out, View<const T, 4> x, long long length,
    int reverse, int exclusive, T beta) {
  T sum = 0;
  for (long long i = 0; i < length; ++i) {
    const long long k = reverse ? length - 1 - i : i;
    const T value = x(a, b, c, k);
    const T result = exclusive ? sum : sum + value;
    sum += value;
    out(a, b, c, k) = beta == T(0) ? result : result + beta * out(a, b, c, k);
  }
}
