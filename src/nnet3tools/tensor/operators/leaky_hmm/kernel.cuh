// The leaky HMM's forward-backward (formulas: __init__.py): a block of threads for each sequence n goes
// through all frames, so that there is no launch for each frame. A thread owns states, and pdfs for the
// posteriors; arcs are sorted by what is summed for, so that sums need no atomics and come out the same
// at each run.

// `alpha` keeps alpha' of all frames.
template <typename T>
__device__ void leaky_hmm(
    long long n, View<const T, 2> x, View<T, 3> alpha, View<double, 2> totals, View<double, 2> sums,
    View<const float, 1> initial, View<const int, 1> offsets, View<const int, 1> sources,
    View<const int, 1> pdfs, View<const float, 1> probs, int states, long long frames, double leak,
    double final_factor) {
  __shared__ nn_Sum<double> part[33];
  double log_prob = 0.0;
  for (int i = threadIdx.x; i < states; i += blockDim.x) alpha(0, n, i) = initial(i);
  for (long long t = 0;; ++t) {
    nn_Sum<double> acc; acc.init();
    for (int i = threadIdx.x; i < states; i += blockDim.x) acc.add(alpha(t, n, i));
    const double total = nn_block(acc, part).a;
    if (threadIdx.x == 0) totals(t, n) = total;
    if (t == frames) {
      if (threadIdx.x == 0) sums(n, 0) = log_prob + log(total * final_factor);
      break;
    }
    log_prob += log(total);
    for (int i = threadIdx.x; i < states; i += blockDim.x)
      alpha(t, n, i) = T(alpha(t, n, i) / total + leak * initial(i));
    __syncthreads();
    for (int j = threadIdx.x; j < states; j += blockDim.x) {
      T sum = 0;
      for (int k = offsets(j); k < offsets(j + 1); ++k)
        sum += probs(k) * x(t * n_n + n, pdfs(k)) * alpha(t, n, sources(k));
      alpha(t + 1, n, j) = sum;
    }
  }
}

// `beta` has two frames; `used` are the pdfs that arcs have.
template <typename T>
__device__ void leaky_hmm_back(
    long long n, View<const T, 2> x, View<const T, 3> alpha, View<const double, 2> totals,
    View<double, 2> sums, View<const float, 1> initial, View<T, 3> beta, View<T, 2> deriv,
    View<const int, 1> from_offsets, View<const int, 1> from_destinations,
    View<const int, 1> from_pdfs,
    View<const float, 1> from_probs, View<const int, 1> used, View<const int, 1> pdf_offsets,
    View<const int, 1> pdf_sources, View<const int, 1> pdf_destinations,
    View<const float, 1> pdf_probs, int states, long long frames, double leak, double final_factor,
    int groups, T weight) {
  __shared__ nn_Sum<double> part[33];
  const double last = 1.0 / (totals(frames, n) * final_factor);
  nn_Sum<double> posteriors; posteriors.init();
  for (int i = threadIdx.x; i < states; i += blockDim.x) beta(frames % 2, n, i) = T(last);
  for (long long t = frames - 1; t >= 0; --t) {
    const long long now = t % 2, after = (t + 1) % 2, row = t * n_n + n;
    nn_Sum<double> acc; acc.init();
    for (int i = threadIdx.x; i < states; i += blockDim.x)
      acc.add(initial(i) * beta(after, n, i));
    const T leaked = T(leak * nn_block(acc, part).a);
    for (int i = threadIdx.x; i < states; i += blockDim.x) beta(after, n, i) += leaked;
    __syncthreads();
    for (int i = threadIdx.x; i < states; i += blockDim.x) {
      T sum = 0;
      for (int k = from_offsets(i); k < from_offsets(i + 1); ++k)
        sum += from_probs(k) * x(row, from_pdfs(k)) * beta(after, n, from_destinations(k));
      beta(now, n, i) = T(sum / totals(t, n));
    }
    for (int g = threadIdx.x; g < groups; g += blockDim.x) {
      const int pdf = used(g);
      T sum = 0;
      for (int k = pdf_offsets(g); k < pdf_offsets(g + 1); ++k)
        sum += pdf_probs(k) * alpha(t, n, pdf_sources(k))
             * beta(after, n, pdf_destinations(k));
      sum *= x(row, pdf);
      deriv(row, pdf) += weight * sum;
      if (t == 0) posteriors.add(sum);
    }
  }
  nn_Sum<double> both; both.init();
  for (int i = threadIdx.x; i < states; i += blockDim.x)
    both.add((double)alpha(0, n, i) * totals(0, n) * beta(0, n, i));
  both = nn_block(both, part);
  posteriors = nn_block(posteriors, part);
  if (threadIdx.x == 0) { sums(n, 1) = both.a; sums(n, 2) = posteriors.a; }
}
