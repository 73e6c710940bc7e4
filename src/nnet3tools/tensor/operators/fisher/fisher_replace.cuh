// New estimates of online natural gradient from old ones (__init__.py). COLUMNS: columns of a block.

// table: for each estimate addresses of w, j, transform and coefficients, rank, dim, and the pitches of
// w and j. W = A (J + diag(coefficients) W), by columns, a block so many of them; rows whose coefficient
// is 0 stay, as the products were not finite.
extern "C" __global__ void fisher_replace_COLUMNS(const long long* table) {
  extern __shared__ float old[];  // rank x COLUMNS
  const long long* at = table + 8 * blockIdx.y;
  float* w = (float*)at[0];
  const float *j = (const float*)at[1], *transform = (const float*)at[2];
  const float* coefficients = (const float*)at[3];
  const int rank = (int)at[4], dim = (int)at[5];
  const int x = threadIdx.x % COLUMNS, y = threadIdx.x / COLUMNS, rows = blockDim.x / COLUMNS;
  const long long column = blockIdx.x * (long long)COLUMNS + x;
  if (blockIdx.x * (long long)COLUMNS >= dim) return;
  for (int r = y; r < rank; r += rows)
    old[r * COLUMNS + x] = column < dim
        ? j[r * at[7] + column] + coefficients[r] * w[r * at[6] + column] : 0.0f;
  __syncthreads();
  if (column >= dim) return;
  for (int r = y; r < rank; r += rows) {
    if (coefficients[r] == 0.0f) continue;
    const float* factors = transform + (long long)r * rank;
    float sum = 0.0f;
    for (int k = 0; k < rank; ++k) sum += factors[k] * old[k * COLUMNS + x];
    w[r * at[6] + column] = sum;
  }
}
