// Make the rows of R = E^-1/2 W orthonormal again (__init__.py). MOST stands for the largest rank,
// ORTHOGONALITY for the largest tolerated element of R R^T - I.

struct Estimate {
  float* w;
  const double *d, *numbers;
  const float* gram;  // W W^T
  long long rank, dim, pitch;
  double alpha;
};

// Gram and Schmidt's process, each row twice; what vanishes, as it lies in the span of the rows
// before, becomes the first unit vector that does not. A warp makes a product with a row before; a
// thread has its own columns.
extern "C" __launch_bounds__(1024) __global__ void orthonormalize_MOST(const Estimate* estimates) {
  __shared__ double scale[MOST], dots[MOST];
  __shared__ nn_Sum<double> part[33];
  __shared__ nn_Max<double> worst_part[33];
  const Estimate& of = estimates[blockIdx.x];
  const int n = (int)of.rank, dim = (int)of.dim;
  const long long pitch = of.pitch;
  float* w = of.w;
  const double *d = of.d, *numbers = of.numbers, alpha = of.alpha;
  const int thread = threadIdx.x, threads = blockDim.x;
  const int lane = thread % 32, warp = thread / 32, warps = threads / 32;
  if (numbers[1] == 0.0) return;
  nn_Sum<double> acc;
  acc.init();
  for (int i = thread; i < n; i += threads) acc.add(d[i]);
  const double beta = numbers[0] * (1.0 + alpha) + alpha * nn_block(acc, part).a / dim;
  for (int i = thread; i < n; i += threads) scale[i] = 1.0 / sqrt(beta / d[i] + 1.0);
  __syncthreads();
  nn_Max<double> worst;
  worst.init();
  for (int i = warp; i < n; i += warps)
    for (int j = lane; j < n; j += 32)
      worst.add(nn_abs(of.gram[i * n + j] / (scale[i] * scale[j]) - (i == j ? 1.0 : 0.0)));
  if (nn_block(worst, worst_part).a <= ORTHOGONALITY) return;
  for (int i = 0; i < n; ++i) {
    float* row = w + i * pitch;
    for (int c = thread; c < dim; c += threads) row[c] = (float)(row[c] / scale[i]);
    for (int tried = 0; tried <= dim; ++tried) {
      for (int pass = 0; pass < 2; ++pass) {
        __syncthreads();
        for (int j = warp; j < i; j += warps) {
          acc.init();
          for (int c = lane; c < dim; c += 32) acc.add((double)row[c] * (double)w[j * pitch + c]);
          acc = nn_warp(acc);
          if (lane == 0) dots[j] = acc.a;
        }
        __syncthreads();
        for (int c = thread; c < dim; c += threads) {
          double left = row[c];
          for (int j = 0; j < i; ++j) left -= dots[j] * (double)w[j * pitch + c];
          row[c] = (float)left;
        }
      }
      acc.init();
      for (int c = thread; c < dim; c += threads) acc.add((double)row[c] * (double)row[c]);
      const double norm = sqrt(nn_block(acc, part).a);
      // of the unit vectors one at least has half of this mean left
      const double enough = tried == 0 ? 1e-4 : sqrt(0.5 * (dim - i) / dim);
      if (norm > enough) {
        for (int c = thread; c < dim; c += threads) row[c] = (float)(row[c] / norm);
        break;
      }
      for (int c = thread; c < dim; c += threads) row[c] = c == (i + tried) % dim ? 1.0f : 0.0f;
    }
  }
  for (int i = 0; i < n; ++i)
    for (int c = thread; c < dim; c += threads) w[i * pitch + c] = (float)(w[i * pitch + c] * scale[i]);
}
