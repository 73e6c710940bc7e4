// Products A B^T of matrices with few rows and many columns, of all of online natural gradient's
// estimates at once: there are dozens of them, each too small to keep a device busy.

struct Product {
  float* out;
  const float *a, *b;
  float* partial;         // sums of some of the columns
  unsigned* tickets;      // one for each tile
  const double* wanted;   // null, or a number that is 0 where nothing is to be done
  long long rows, columns, dim, pitch_a, pitch_b;
};

// Where A and B are the same matrix only the upper triangle of tiles is made.
// A block makes the sums of a tile of 40 x 40 (ranks are mostly 20, 40, 80) over 256 columns; the last
// block of a tile adds these, in order. A quarter of its threads does a quarter of the columns, a
// thread 5 x 5 elements.
extern "C" __launch_bounds__(256) __global__ void row_products(const Product* products) {
  const int tile = 40, depth = 64, width = depth + 1, size = tile * tile, chunk = 256;
  __shared__ float work[2 * tile * width];
  __shared__ bool answer;
  float *left = work, *right = work + tile * width;
  const Product& of = products[blockIdx.y];
  const float *a = of.a, *b = of.b;
  const int rows = (int)of.rows, cols = (int)of.columns, dim = (int)of.dim;
  const int across = (cols + tile - 1) / tile, splits = (dim + chunk - 1) / chunk;
  const int spot = blockIdx.x / splits, split = blockIdx.x % splits;
  const int row = spot / across * tile, col = spot % across * tile;
  const bool is_symmetric = a == b;
  if (row >= rows || (is_symmetric && col < row) || (of.wanted != 0 && *of.wanted == 0.0)) return;
  const int thread = threadIdx.x, x = thread % 8, y = thread / 8 % 8, quarter = thread / 64;
  float sum[5][5];
  for (int p = 0; p < 5; ++p)
    for (int q = 0; q < 5; ++q) sum[p][q] = 0.0f;
  const int end = nn_min(dim, (split + 1) * chunk);
  for (int begin = split * chunk; begin < end; begin += depth) {
    for (int k = thread; k < tile * depth; k += 256) {
      const int r = k / depth, c = k % depth, inner = begin + c;
      left[r * width + c] = inner < end && row + r < rows ? a[(row + r) * of.pitch_a + inner] : 0.0f;
      right[r * width + c] = inner < end && col + r < cols ? b[(col + r) * of.pitch_b + inner] : 0.0f;
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
  float* partial = of.partial + (long long)spot * splits * size;
  if (quarter == 0)
    for (int p = 0; p < 5; ++p)
      for (int q = 0; q < 5; ++q) {
        const int k = (y + 8 * p) * tile + x + 8 * q;
        partial[split * size + k] = sum[p][q] + work[k] + work[size + k] + work[2 * size + k];
      }
  if (!nn_is_last(of.tickets + spot, splits, thread == 0, &answer)) return;
  for (int k = thread; k < size; k += 256) {
    const int r = row + k / tile, c = col + k % tile;
    if (r >= rows || c >= cols) continue;
    double total = 0.0;
    for (int s = 0; s < splits; ++s) total += partial[s * size + k];
    of.out[(long long)r * cols + c] = (float)total;
    if (is_symmetric && row < col) of.out[(long long)c * cols + r] = (float)total;
  }
}
