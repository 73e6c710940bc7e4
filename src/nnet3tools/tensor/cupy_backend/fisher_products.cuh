// Products of online natural gradient's estimates, of all estimates at once: there are dozens of
// them, each too small to keep a device busy. Names are those of tensor/fisher.py.

// table: for each estimate addresses of products, j and w, rank, dim, and the pitches of j and w.
// A block makes a tile of 32 x 32 elements of [J; W] J^T.
extern "C" __global__ void fisher_products(const long long* table) {
  const int tile = 32, depth = 64;
  __shared__ float left[tile][depth + 1], right[tile][depth + 1];
  const long long* at = table + 7 * blockIdx.y;
  float* products = (float*)at[0];
  const float *j = (const float*)at[1], *w = (const float*)at[2];
  const int rank = (int)at[3], dim = (int)at[4];
  const int across = (rank + tile - 1) / tile;
  const int row = blockIdx.x / across * tile, col = blockIdx.x % across * tile;
  if (row >= 2 * rank) return;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  float sum[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
  for (int begin = 0; begin < dim; begin += depth) {
    for (int k = threadIdx.x; k < tile * depth; k += blockDim.x) {
      const int r = k / depth, c = k % depth, inner = begin + c;
      const int a = row + r, b = col + r;
      float first = 0.0f;
      if (inner < dim && a < 2 * rank)
        first = a < rank ? j[a * at[5] + inner] : w[(a - rank) * at[6] + inner];
      left[r][c] = first;
      right[r][c] = inner < dim && b < rank ? j[b * at[5] + inner] : 0.0f;
    }
    __syncthreads();
    for (int c = 0; c < depth; ++c) {
      const float a0 = left[y][c], a1 = left[y + 16][c], b0 = right[x][c], b1 = right[x + 16][c];
      sum[0][0] += a0 * b0;
      sum[0][1] += a0 * b1;
      sum[1][0] += a1 * b0;
      sum[1][1] += a1 * b1;
    }
    __syncthreads();
  }
  for (int p = 0; p < 2; ++p)
    for (int q = 0; q < 2; ++q) {
      const int a = row + y + 16 * p, b = col + x + 16 * q;
      if (a < 2 * rank && b < rank) products[(long long)a * rank + b] = sum[p][q];
    }
}
