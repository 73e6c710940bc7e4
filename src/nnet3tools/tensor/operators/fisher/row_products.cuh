// Products A B^T of matrices with few rows and many columns, of all of online natural gradient's
// estimates at once: there are dozens of them, each too small to keep a device busy.

// table: for each product addresses of the result, of A, B, partial sums, tickets, and of a number that
// is 0 where nothing is to be done (or 0: there is none); rows of A and of B, columns, pitches of A and
// B. Where A and B are the same matrix only the upper triangle of tiles is made.
// A block makes the sums of a tile of 40 x 40 (ranks are mostly 20, 40, 80) over 256 columns; the last
// block of a tile adds these, in order. A quarter of its threads does a quarter of the columns, a
// thread 5 x 5 elements.
extern "C" __launch_bounds__(256) __global__ void row_products(const long long* table) {
  const int tile = 40, depth = 64, width = depth + 1, size = tile * tile, chunk = 256;
  __shared__ float work[2 * tile * width];
  __shared__ bool answer;
  float *left = work, *right = work + tile * width;
  const long long* at = table + 11 * blockIdx.y;
  const float *a = (const float*)at[1], *b = (const float*)at[2];
  const double* wanted = (const double*)at[5];
  const int rows = (int)at[6], cols = (int)at[7], dim = (int)at[8];
  const int across = (cols + tile - 1) / tile, splits = (dim + chunk - 1) / chunk;
  const int spot = blockIdx.x / splits, split = blockIdx.x % splits;
  const int row = spot / across * tile, col = spot % across * tile;
  const bool is_symmetric = a == b;
  if (row >= rows || (is_symmetric && col < row) || (wanted != 0 && *wanted == 0.0)) return;
  const int thread = threadIdx.x, x = thread % 8, y = thread / 8 % 8, quarter = thread / 64;
  float sum[5][5];
  for (int p = 0; p < 5; ++p)
    for (int q = 0; q < 5; ++q) sum[p][q] = 0.0f;
  const int end = nn_min(dim, (split + 1) * chunk);
  for (int begin = split * chunk; begin < end; begin += depth) {
    for (int k = thread; k < tile * depth; k += 256) {
      const int r = k / depth, c = k % depth, inner = begin + c;
      left[r * width + c] = inner < end && row + r < rows ? a[(row + r) * at[9] + inner] : 0.0f;
      right[r * width + c] = inner < end && col + r < cols ? b[(col + r) * at[10] + inner] : 0.0f;
    }
    __syncthreads();
    for (int c = quarter * (depth / 4); c < (quarter + 1) * (depth / 4); ++c) {
      float one[5], other[5];
      for (int p = 0; p < 5; ++p) {
        one[p] = left[(y + 8 * p) * width + c];
        other[p] = right[(x + 8 * p) * width + c];
      }
      for (int p = 0; p < 5; ++p)
        for (int q = 0; q < 5; ++q) sum[p][q] += one[p] * other[q];
    }
    __syncthreads();
  }
  if (quarter > 0)
    for (int p = 0; p < 5; ++p)
      for (int q = 0; q < 5; ++q)
        work[(quarter - 1) * size + (y + 8 * p) * tile + x + 8 * q] = sum[p][q];
  __syncthreads();
  float* partial = (float*)at[3] + (long long)spot * splits * size;
  if (quarter == 0)
    for (int p = 0; p < 5; ++p)
      for (int q = 0; q < 5; ++q) {
        const int k = (y + 8 * p) * tile + x + 8 * q;
        partial[split * size + k] = sum[p][q] + work[k] + work[size + k] + work[2 * size + k];
      }
  if (!nn_is_last((unsigned*)at[4] + spot, splits, thread == 0, &answer)) return;
  float* out = (float*)at[0];
  for (int k = thread; k < size; k += 256) {
    const int r = row + k / tile, c = col + k % tile;
    if (r >= rows || c >= cols) continue;
    double total = 0.0;
    for (int s = 0; s < splits; ++s) total += partial[s * size + k];
    out[(long long)r * cols + c] = (float)total;
    if (is_symmetric && row < col) out[(long long)c * cols + r] = (float)total;
  }
}
