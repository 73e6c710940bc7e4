// The estimates of online natural gradient, one block of threads for each. Formulas and names are
// those of tensor/fisher.py. MOST stands for the largest rank, SHARED for 1 where matrices are in
// shared memory, THREADS for those of a block.

// table: for each estimate its rank, addresses of d, numbers, transform, coefficients, products, trace,
// work; factors: for each eta / num_rows, 1 - eta, alpha, dim, and the floors and limits.
// A warp does a row of what is square, so that no thread has to divide.
extern "C" __launch_bounds__(THREADS) __global__ void fisher_step_MOST_SHARED(
    const long long* table, const double* factors) {
  const int most = MOST + MOST % 2;
  __shared__ double ise[most], d_rho[most], value[most], root[most];
  __shared__ double cosine[most / 2], sine[most / 2];
  __shared__ double rho, smallest, sum_d;
  __shared__ int first[most / 2], second[most / 2], source[most];
  __shared__ nn_Sum<double> part[33];
  const long long* at = table + 8 * blockIdx.x;
  const int n = (int)at[0], half = (n + 1) / 2, size = 2 * half;  // padded by a zero row if odd
  const double* factor = factors + 8 * blockIdx.x;
  double* d = (double*)at[1];
  double* numbers = (double*)at[2];
  float* transform = (float*)at[3];
  float* coefficients = (float*)at[4];
  const float* products = (const float*)at[5];
  const double trace = *(const double*)at[6];
#if SHARED
  extern __shared__ double u[];  // rows: eigenvectors
#else
  double* u = (double*)at[7];
#endif
  double* z = u + size * size;  // the upper triangle
  const double eta_n = factor[0], keep = factor[1], alpha = factor[2], dim = factor[3];
  const int thread = threadIdx.x, threads = blockDim.x;
  const int lane = thread % 32, warp = thread / 32, warps = threads / 32;
  auto place = [](int i, int j) { return i <= j ? j * (j + 1) / 2 + i : i * (i + 1) / 2 + j; };

  nn_Sum<double> acc;
  acc.init();
  for (int k = thread; k < 2 * n * n; k += threads)
    acc.add(products[k] - products[k] == 0.0f ? 0.0 : 1.0);
  const bool diverged = nn_block(acc, part).a != 0.0;
  if (diverged) {
    for (int k = thread; k < n * n; k += threads) transform[k] = 0.0f;
    for (int k = thread; k < n; k += threads) coefficients[k] = 0.0f;
    if (thread == 0) numbers[2] += 1.0;
    return;
  }

  // Z
  acc.init();
  for (int i = thread; i < n; i += threads) acc.add(d[i]);
  const double old_sum = nn_block(acc, part).a, old_rho = numbers[0];
  const double old_beta = old_rho * (1.0 + alpha) + alpha * old_sum / dim;
  for (int i = thread; i < n; i += threads) {
    ise[i] = sqrt(old_beta / d[i] + 1.0);
    d_rho[i] = d[i] + old_rho;
  }
  __syncthreads();
  acc.init();
  for (int i = warp; i < size; i += warps)
    for (int j = lane; j < size; j += 32) {
      u[i * size + j] = i == j ? 1.0 : 0.0;
      if (i > j) continue;
      double z_ij = 0.0;
      if (j < n) {
        const double both = ise[i] * ise[j];
        const double k_ij = 0.5 * ((double)products[i * n + j] + (double)products[j * n + i]);
        const float* l = products + n * n;
        const double l_ij = 0.5 * ((double)l[i * n + j] + (double)l[j * n + i]);
        z_ij = eta_n * eta_n * both * k_ij + eta_n * keep * both * l_ij * (d_rho[i] + d_rho[j]);
        if (i == j) z_ij += keep * d_rho[i] * (keep * d_rho[i]);
      }
      z[place(i, j)] = z_ij;
      acc.add((i == j ? 1.0 : 2.0) * z_ij * z_ij);
    }
  const double total = nn_block(acc, part).a;

  // Jacobi: rounds of a tournament, in each of which half of the pairs are rotated at once
  for (int sweep = 0; sweep < 30; ++sweep) {
    acc.init();
    for (int j = warp; j < size; j += warps)
      for (int i = lane; i < j; i += 32) acc.add(2.0 * z[place(i, j)] * z[place(i, j)]);
    if (nn_block(acc, part).a <= 1e-30 * total) break;
    for (int round = 0; round < size - 1; ++round) {
      for (int k = thread; k < half; k += threads) {
        const int a = k == 0 ? size - 1 : (round + k) % (size - 1);
        const int b = (round + size - 1 - k) % (size - 1);
        const int p = a < b ? a : b, q = a < b ? b : a;
        const double zpq = z[place(p, q)];
        double t = 0.0;
        if (zpq != 0.0) {
          const double theta = (z[place(q, q)] - z[place(p, p)]) / (2.0 * zpq);
          t = (theta < 0.0 ? -1.0 : 1.0) / (nn_abs(theta) + sqrt(theta * theta + 1.0));
        }
        cosine[k] = 1.0 / sqrt(t * t + 1.0);
        sine[k] = t * cosine[k];
        first[k] = p;
        second[k] = q;
      }
      __syncthreads();
      for (int a = warp; a < half; a += warps) {
        const double ca = cosine[a], sa = sine[a];
        const int pa = first[a], qa = second[a];
        for (int b = a + lane; b < half; b += 32) {
          const double cb = cosine[b], sb = sine[b];
          const int pb = first[b], qb = second[b];
          if (a == b) {
            const double pp = z[place(pa, pa)], pq = z[place(pa, qa)], qq = z[place(qa, qa)];
            z[place(pa, pa)] = ca * ca * pp - 2.0 * ca * sa * pq + sa * sa * qq;
            z[place(qa, qa)] = sa * sa * pp + 2.0 * ca * sa * pq + ca * ca * qq;
            z[place(pa, qa)] = 0.0;
            continue;
          }
          const double z00 = z[place(pa, pb)], z01 = z[place(pa, qb)];
          const double z10 = z[place(qa, pb)], z11 = z[place(qa, qb)];
          const double y00 = ca * z00 - sa * z10, y01 = ca * z01 - sa * z11;
          const double y10 = sa * z00 + ca * z10, y11 = sa * z01 + ca * z11;
          z[place(pa, pb)] = cb * y00 - sb * y01;
          z[place(pa, qb)] = sb * y00 + cb * y01;
          z[place(qa, pb)] = cb * y10 - sb * y11;
          z[place(qa, qb)] = sb * y10 + cb * y11;
        }
      }
      for (int pair = warp; pair < half; pair += warps) {
        const double c = cosine[pair], s = sine[pair];
        double *up = u + first[pair] * size, *uq = u + second[pair] * size;
        for (int i = lane; i < size; i += 32) {
          const double vp = up[i], vq = uq[i];
          up[i] = c * vp - s * vq;
          uq[i] = s * vp + c * vq;
        }
      }
      __syncthreads();
    }
  }

  // eigenvalues by decreasing size, floored
  for (int i = thread; i < n; i += threads) {
    const double mine = z[place(i, i)];
    int above = 0;
    for (int j = 0; j < n; ++j) {
      const double other = z[place(j, j)];
      above += nn_abs(other) > nn_abs(mine) || (nn_abs(other) == nn_abs(mine) && j < i);
    }
    source[above] = i;
    value[above] = mine;
  }
  __syncthreads();
  const double floor_c = old_rho * keep * (old_rho * keep);
  for (int i = thread; i < n; i += threads) root[i] = sqrt(nn_max(value[i], floor_c));
  __syncthreads();
  if (thread == 0) {
    double sum = 0.0, largest = 0.0;
    bool doubtful = value[0] > factor[4] * value[n - 1];
    for (int i = 0; i < n; ++i) {
      sum += root[i];
      largest = nn_max(largest, root[i]);
      doubtful = doubtful || value[i] < floor_c;
    }
    const double trace_t = eta_n * trace + keep * (dim * old_rho + old_sum);
    const double new_rho = (trace_t - sum) / (dim - n);
    smallest = nn_max(factor[5], factor[6] * largest);
    sum_d = 0.0;
    for (int i = 0; i < n; ++i) sum_d += nn_max(root[i] - new_rho, smallest);
    value[0] = new_rho;
    rho = nn_max(new_rho, smallest);
    numbers[0] = rho;
    numbers[1] = doubtful ? 1.0 : 0.0;
  }
  __syncthreads();
  const double beta = rho * (1.0 + alpha) + alpha * sum_d / dim;
  for (int i = thread; i < n; i += threads) {
    d[i] = nn_max(root[i] - value[0], smallest);
    coefficients[i] = (float)(keep / eta_n * d_rho[i]);
  }
  for (int i = warp; i < n; i += warps) {
    const double d_i = nn_max(root[i] - value[0], smallest);
    const double scale = eta_n / sqrt(beta / d_i + 1.0) / root[i];
    for (int j = lane; j < n; j += 32)
      transform[i * n + j] = (float)(scale * u[source[i] * size + j] * ise[j]);
  }
}
