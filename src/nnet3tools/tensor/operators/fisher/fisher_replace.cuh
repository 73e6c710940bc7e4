// New estimates of online natural gradient from old ones (__init__.py). COLUMNS: columns of a block.

struct Estimate {
  float* w;
  const float *j, *transform, *coefficients;
  long long rank, dim, pitch_w, pitch_j;
};

// W = A (J + diag(coefficients) W), by columns, a block so many of them; rows whose coefficient
// is 0 stay, as the products were not finite.
extern "C" __global__ void fisher_replace_COLUMNS(const Estimate* estimates) {
  extern __shared__ float old[];  // rank x COLUMNS
  const Estimate& of = estimates[blockIdx.y];
  const float* coefficients = of.coefficients;
  const int rank = (int)of.rank, dim = (int)of.dim;
  const int x = threadIdx.x % COLUMNS, y = threadIdx.x / COLUMNS, rows = blockDim.x / COLUMNS;
  const long long column = blockIdx.x * (long long)COLUMNS + x;
  if (blockIdx.x * (long long)COLUMNS >= dim) return;
  for (int r = y; r < rank; r += rows)
    old[r * COLUMNS + x] = column < dim
        ? of.j[r * of.pitch_j + column] + coefficients[r] * of.w[r * of.pitch_w + column] : 0.0f;
  __syncthreads();
  if (column >= dim) return;
  for (int r = y; r < rank; r += rows) {
    if (coefficients[r] == 0.0f) continue;
    const float* factors = of.transform + (long long)r * rank;
    float sum = 0.0f;
    for (int k = 0; k < rank; ++k) sum += factors[k] * old[k * COLUMNS + x];
    of.w[r * of.pitch_w + column] = sum;
  }
}
