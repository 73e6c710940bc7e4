// The estimates of online natural gradient, one block of threads for each. Formulas and names are
// those of __init__.py. MOST stands for the largest rank, SHARED for 1 if the matrix is in shared
// memory, THREADS for the threads of a block, LANES for the threads that share a column; SMALL_TURN,
// MAX_CONDITION, EPSILON and DELTA for limits that are stated in Python.

struct Estimate {
  long long rank;
  double *d, *numbers;
  float *transform, *coefficients;
  const float* products;
  const double* trace;
  double* work;           // the matrix, if it is not in shared memory
  double eta_n, keep;     // eta / num_rows, 1 - eta
  double alpha, dim;
};

// Eigenvectors are found by Jacobi's method from one side: with Z + shift I = L L^T the columns of L
// are turned, two at a time, until all are orthogonal: they are eigenvectors then, and their squared
// lengths the eigenvalues. So there is one matrix to turn, and one barrier a round: in a round LANES
// threads have two teams of two columns in registers and turn each column against the other team's.
extern "C" __launch_bounds__(THREADS, 1) __global__ void fisher_step_MOST_SHARED(
    const Estimate* estimates) {
  const int most = (MOST + 3) / 4 * 4, each = (MOST + LANES - 1) / LANES, pitch = each * LANES;
  __shared__ double ise[most], d_rho[most], value[most], root[most], square[most];
  __shared__ double rho, smallest, sum_d;
  __shared__ int source[most];
  __shared__ nn_Sum<double> part[33];
  const Estimate& of = estimates[blockIdx.x];
  const int n = (int)of.rank, size = (n + 3) / 4 * 4;  // padded by zero columns
  double *d = of.d, *numbers = of.numbers;
  float *transform = of.transform, *coefficients = of.coefficients;
  const float* products = of.products;
#if SHARED
  extern __shared__ double columns[];  // of Z, of L, then eigenvectors
#else
  double* columns = of.work;
#endif
  const double eta_n = of.eta_n, keep = of.keep, alpha = of.alpha, dim = of.dim;
  const int thread = threadIdx.x, threads = blockDim.x;
  const int lane = thread % 32, warp = thread / 32, warps = threads / 32;

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
  // Needed, though no test fails without it: where a race spoils L, the next, larger shift hides it.
  __syncthreads();
  double scale = 0.0, shift = 0.0;
  for (double part_of_scale = 1e-6; part_of_scale < 10.0; part_of_scale *= 100.0) {
    acc.init();
    for (int j = warp; j < size; j += warps)
      for (int i = lane; i < pitch; i += 32) {
        double z_ij = 0.0;
        if (i < n && j < n) {
          const double both = ise[i] * ise[j];
          const double k_ij = 0.5 * ((double)products[i * n + j] + (double)products[j * n + i]);
          const float* l = products + n * n;
          const double l_ij = 0.5 * ((double)l[i * n + j] + (double)l[j * n + i]);
          z_ij = eta_n * eta_n * both * k_ij + eta_n * keep * both * l_ij * (d_rho[i] + d_rho[j]);
          if (i == j) z_ij += keep * d_rho[i] * (keep * d_rho[i]);
        }
        columns[j * pitch + i] = z_ij;
        acc.add(z_ij * z_ij);
      }
    scale = sqrt(nn_block(acc, part).a);
    shift = part_of_scale * scale;
    // L: Z may have eigenvalues below zero, as products are rounded to float32
    int k = 0;
    for (; k < n; ++k) {
      const double pivot = columns[k * pitch + k] + shift;
      if (!(pivot > 0.01 * shift)) break;
      const double inverse = 1.0 / pivot;
      for (int j = k + 1 + warp; j < n; j += warps) {
        const double l_jk = columns[k * pitch + j] * inverse;
        for (int i = j + lane; i < n; i += 32)
          columns[j * pitch + i] -= l_jk * columns[k * pitch + i];
      }
      __syncthreads();
    }
    if (k == n) break;
    __syncthreads();
  }
  for (int k = warp; k < n; k += warps) {
    const double root_of_pivot = sqrt(columns[k * pitch + k] + shift);
    __syncwarp();
    const double inverse = 1.0 / root_of_pivot;
    for (int i = lane; i < n; i += 32) {
      const double l_ik = i == k ? root_of_pivot : columns[k * pitch + i] * inverse;
      columns[k * pitch + i] = i < k ? 0.0 : l_ik;
    }
  }
  __syncthreads();

  // Jacobi: rounds of a tournament of teams of two columns; in the first, columns of a team meet, too
  const int teams = size / 2, member = lane % LANES;
  const bool upper = member >= LANES / 2;
  const double unit = 1.0 / scale;
  double own[4][each], length[4];  // squared
  for (int sweep = 0; sweep < 30; ++sweep) {
    bool again = false;
    // Turns column a against b, and c against d; half of the threads find the one angle, half the
    // other. Float32 will do for an angle, as long as it is one, and for the lengths that come of it:
    // they are found anew in each sweep.
    auto turn = [&](int a, int b, int c, int d) {
      double lower_sum = 0.0, upper_sum = 0.0;
#pragma unroll
      for (int e = 0; e < each; ++e) {
        lower_sum += own[a][e] * own[b][e];
        upper_sum += own[c][e] * own[d][e];
      }
      double dot = upper ? upper_sum : lower_sum;
      dot += __shfl_xor_sync(0xffffffffu, upper ? lower_sum : upper_sum, LANES / 2);
      for (int step = LANES / 4; step > 0; step /= 2)
        dot += __shfl_xor_sync(0xffffffffu, dot, step);
      const double pp = upper ? length[c] : length[a], qq = upper ? length[d] : length[b];
      again = again || dot * dot > SMALL_TURN * pp * qq;
      // tan = f / (|gap| + s), divided by s, with s^2 = gap^2 + f^2: what is divided by is 1 to 2
      const float f = 2.0f * (float)(dot * unit), gap = (float)((qq - pp) * unit);
      const float squares = gap * gap + f * f;
      const float inverse = squares > 0.0f ? rsqrtf(squares) : 0.0f;
      const float slope =
          __fdividef((gap < 0.0f ? -f : f) * inverse, fabsf(gap) * inverse + 1.0f);
      const double tangent = slope, h = tangent * tangent + 1.0;
      double cosine = rsqrtf(slope * slope + 1.0f);
      cosine *= 1.5 - 0.5 * h * cosine * cosine;
      const double sine = cosine * tangent, change = tangent * dot;
      const double other_cosine = __shfl_xor_sync(0xffffffffu, cosine, LANES / 2);
      const double other_sine = __shfl_xor_sync(0xffffffffu, sine, LANES / 2);
      const double other_change = __shfl_xor_sync(0xffffffffu, change, LANES / 2);
      length[a] -= upper ? other_change : change;
      length[b] += upper ? other_change : change;
      length[c] -= upper ? change : other_change;
      length[d] += upper ? change : other_change;
      const double c0 = upper ? other_cosine : cosine, s0 = upper ? other_sine : sine;
      const double c1 = upper ? cosine : other_cosine, s1 = upper ? sine : other_sine;
#pragma unroll
      for (int e = 0; e < each; ++e) {
        const double p = own[a][e], q = own[b][e], r = own[c][e], s = own[d][e];
        own[a][e] = c0 * p - s0 * q;
        own[b][e] = s0 * p + c0 * q;
        own[c][e] = c1 * r - s1 * s;
        own[d][e] = s1 * r + c1 * s;
      }
    };
    for (int round = 0; round < teams - 1; ++round) {
      // whole warps, as threads of a warp tell each other numbers
      for (int first = warp * (32 / LANES); first < teams / 2; first += threads / LANES) {
        const int k = first + lane / LANES;
        int one = k == 0 ? teams - 1 : round + k, other = round + teams - 1 - k;
        if (k > 0 && one >= teams - 1) one -= teams - 1;
        if (other >= teams - 1) other -= teams - 1;
        const bool is_there = k < teams / 2;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int column = 2 * (c < 2 ? one : other) + c % 2;
#pragma unroll
          for (int e = 0; e < each; ++e)
            own[c][e] = is_there ? columns[column * pitch + e * LANES + member] : 0.0;
          if (round > 0) {
            length[c] = is_there ? square[column] : 0.0;
            continue;
          }
          double sum = 0.0;
#pragma unroll
          for (int e = 0; e < each; ++e) sum += own[c][e] * own[c][e];
          for (int step = LANES / 2; step > 0; step /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
          length[c] = sum;
        }
        if (round == 0) turn(0, 1, 2, 3);
        turn(0, 2, 1, 3);
        turn(0, 3, 1, 2);
        if (!is_there) continue;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int column = 2 * (c < 2 ? one : other) + c % 2;
#pragma unroll
          for (int e = 0; e < each; ++e) columns[column * pitch + e * LANES + member] = own[c][e];
          if (member == 0) square[column] = length[c];
        }
      }
      __syncthreads();
    }
    // A sweep about squares the cosines of the angles between columns.
    acc.init();
    acc.add(again ? 1.0 : 0.0);
    if (nn_block(acc, part).a == 0.0) break;
  }
  for (int first = warp * (32 / LANES); first < n; first += threads / LANES) {
    const int column = first + lane / LANES;
    double sum = 0.0;
#pragma unroll
    for (int e = 0; e < each; ++e) {
      const double x = column < n ? columns[column * pitch + e * LANES + member] : 0.0;
      sum += x * x;
    }
    for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (column < n && member == 0) square[column] = sum;
  }
  __syncthreads();

  // eigenvalues by decreasing size, floored
  for (int i = thread; i < n; i += threads) {
    const double mine = square[i] - shift;
    int above = 0;
    for (int j = 0; j < n; ++j) {
      const double other = square[j] - shift;
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
    bool doubtful = value[0] > MAX_CONDITION * value[n - 1];
    for (int i = 0; i < n; ++i) {
      sum += root[i];
      largest = nn_max(largest, root[i]);
      doubtful = doubtful || value[i] < floor_c;
    }
    const double trace_t = eta_n * *of.trace + keep * (dim * old_rho + old_sum);
    const double new_rho = (trace_t - sum) / (dim - n);
    smallest = nn_max(EPSILON, DELTA * largest);
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
    const double e_i = beta / d_i + 1.0, of_column = eta_n / (sqrt(e_i * square[source[i]]) * root[i]);
    for (int j = lane; j < n; j += 32)
      transform[i * n + j] = (float)(of_column * columns[source[i] * pitch + j] * ise[j]);
  }
}
