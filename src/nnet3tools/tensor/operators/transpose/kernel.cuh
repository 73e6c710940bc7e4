// Tiles of 32 x 32 through shared memory, so that reads and writes are both coalesced.

// The tile at (32 tile_p, 32 tile_q) of out = the transpose of src, or += (ASSIGN); OUTER: the other
// axes. A row has 33 places: the elements of a column lie in 32 different banks.
template <typename T>
__device__ void transpose(
    long long tile_p, long long tile_q, View<T, 2> out, View<const T, 2> src, long long count_p,
    long long count_q) {
  __shared__ T tile[32][33];
  const long long p0 = tile_p * 32, q0 = tile_q * 32;
  for (int k = threadIdx.x; k < 1024; k += blockDim.x) {
    const long long q = q0 + k / 32, p = p0 + k % 32;
    if (q < count_q && p < count_p) tile[k / 32][k % 32] = src(OUTER q, p);
  }
  __syncthreads();
  for (int k = threadIdx.x; k < 1024; k += blockDim.x) {
    const long long p = p0 + k / 32, q = q0 + k % 32;
    if (q < count_q && p < count_p) out(OUTER p, q) ASSIGN tile[k % 32][k / 32];
  }
  // Needed where a block does several tiles: the next one overwrites this one.
  __syncthreads();
}
