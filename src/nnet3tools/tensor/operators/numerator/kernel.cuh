// The numerator's forward-backward (formulas: __init__.py): a block of threads for each acceptor p goes
// through all frames. PACKED_ARRAYS declares the arrays that packed_paths.py packs into `ints` and
// `costs`, by their names there.

// `totals` becomes the log-probability of each acceptor.
template <typename T>
__device__ void numerator(
    long long p, View<const T, 2> output, View<const int, 1> ints, View<const double, 1> costs,
    double* alpha, View<double, 1> totals, long long frames, long long columns) {
  PACKED_ARRAYS
  const int num_parts = parts[0];
  if (threadIdx.x == 0) {
    totals(p) = 0.0;
    if (p < num_parts) alpha[starts[p]] = 0.0;
  }
  __syncthreads();
  for (long long t = 0; p < num_parts && t < frames; ++t) {
    const int now = first_states[t], after = first_states[t + 1];
    const int* const range = to_ranges + which[t] * (num_parts + 1) + p;
    for (int g = range[0] + threadIdx.x; g < range[1]; g += blockDim.x) {
      nn_LogSumExp<double> acc; acc.init();
      for (int k = to_offsets[g]; k < to_offsets[g + 1]; ++k) {
        const long long cell = first_cells[t] + to_cells[k];
        acc.add(alpha[now + to_others[k]] + (output(cell / columns, cell % columns) - to_costs[k]));
      }
      alpha[after + to_keys[g]] = acc.value();
    }
    __syncthreads();
  }
  if (p < num_parts && threadIdx.x == 0) {
    nn_LogSumExp<double> acc; acc.init();
    for (int k = final_offsets[p]; k < final_offsets[p + 1]; ++k)
      acc.add(alpha[finals[k]] - final_costs[k]);
    totals(p) = acc.value();
  }
}

// Adds the posteriors, times `weight`, to `deriv`.
template <typename T>
__device__ void numerator_back(
    long long p, View<const T, 2> output, View<const int, 1> ints, View<const double, 1> costs,
    const double* alpha, View<const double, 1> totals, double* beta,
    View<T, 2> deriv, long long frames, long long columns, double weight) {
  PACKED_ARRAYS
  const int num_parts = parts[0];
  if (p < num_parts)
    for (int k = final_offsets[p] + threadIdx.x; k < final_offsets[p + 1]; k += blockDim.x)
      beta[finals[k]] = -final_costs[k] - totals(p);
  for (long long t = frames - 1; p < num_parts && t >= 0; --t) {
    __syncthreads();
    const int now = first_states[t], after = first_states[t + 1];
    const int* const range = from_ranges + which[t] * (num_parts + 1) + p;
    for (int g = range[0] + threadIdx.x; g < range[1]; g += blockDim.x) {
      nn_LogSumExp<double> acc; acc.init();
      for (int k = from_offsets[g]; k < from_offsets[g + 1]; ++k) {
        const long long cell = first_cells[t] + from_cells[k];
        acc.add(beta[after + from_others[k]] + (output(cell / columns, cell % columns) - from_costs[k]));
      }
      beta[now + from_keys[g]] = acc.value();
    }
    const int* const cells = cell_ranges + which[t] * (num_parts + 1) + p;
    for (int g = cells[0] + threadIdx.x; g < cells[1]; g += blockDim.x) {
      const long long cell = first_cells[t] + cell_keys[g];
      double sum = 0.0;
      for (int k = cell_offsets[g]; k < cell_offsets[g + 1]; ++k)
        sum += exp(alpha[now + cell_sources[k]] + beta[after + cell_others[k]]
                   + (output(cell / columns, cell % columns) - cell_costs[k]));
      deriv(cell / columns, cell % columns) += T(weight * sum);
    }
  }
}
