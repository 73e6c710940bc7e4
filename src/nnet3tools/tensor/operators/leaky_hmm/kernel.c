/* The leaky HMM's forward-backward (formulas: __init__.py): all frames of sixteen sequences, then of
   the next sixteen.

   A vector holds one number of each of sixteen sequences, so an arc costs a broadcast, a load, a
   product and a sum. If there are fewer sequences, the last one fills the vector, which takes no
   longer; only alpha', which is kept for all frames, is stored without these copies. The numbers that
   sixteen sequences need of one frame stay in the second-level cache. */

enum { HMM_LANES = 16, HMM_BLOCK = 64, HMM_LOG_PROB = 0, HMM_ALPHA_BETA, HMM_POSTERIOR_SUM, HMM_RESULTS };
#define HMM_LIMIT 30.0f /* LIMIT of __init__.py */

typedef f32 hmm_vec __attribute__((vector_size(64)));
typedef f32 hmm_packed __attribute__((vector_size(64), aligned(4)));
#define HMM_ALL(a) (hmm_vec){a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a}

typedef struct {
  f64 *results;                     /* (sequences, HMM_RESULTS) */
  const f32 *output;                /* (frames * sequences, pdfs), rows of `output_stride` */
  f32 *deriv;                       /* NULL, or like output */
  i64 output_stride, deriv_stride, num_sequences, num_frames, num_pdfs, num_states, num_groups;
  i64 blocks_per_step, num_blocks;  /* of sixteen sequences */
  const s32 *state_groups;          /* arcs with one destination and one pdf are a group: */
  const s32 *group_pdfs, *group_states, *group_arcs;
  const s32 *sources;               /* by arc, in the order of the groups */
  const f32 *probs;
  const s32 *state_arcs, *arc_groups, *arc_pdfs; /* arcs in the order of their sources */
  const f32 *back_probs;
  const f32 *initial, *leaks;       /* leaks = leak * initial */
  u8 *memory;                       /* `memory_stride` bytes for each step, aligned to 64 */
  i64 memory_stride;
  f64 leak, final_factor, weight;
} leaky_hmm_arguments;

/* sum[l] = the sum over states of values[i], times factors[i] unless that is NULL: by 64 in float32 */
static inline __attribute__((always_inline)) void hmm_sums(
    f64 *sum, const hmm_vec *values, const f32 *factors, i64 states) {
  for (i64 l = 0; l < HMM_LANES; ++l) sum[l] = 0.0;
  for (i64 first = 0; first < states; first += HMM_BLOCK) {
    hmm_vec part = {0};
    for (i64 i = first; i < NN_LEAST(first + HMM_BLOCK, states); ++i)
      part += factors ? HMM_ALL(factors[i]) * values[i] : values[i];
    for (i64 l = 0; l < HMM_LANES; ++l) sum[l] += part[l];
  }
}

/* x = exp of the outputs of frame t, pdf by pdf; `line` has room for one row */
static inline __attribute__((always_inline)) void hmm_load(
    const leaky_hmm_arguments *a, hmm_vec *x, f32 *line, i64 t, i64 first, i64 count) {
  for (i64 l = 0; l < HMM_LANES; ++l) {
    const i64 sequence = first + NN_LEAST(l, count - 1);
    const f32 *const row = a->output + (t * a->num_sequences + sequence) * a->output_stride;
    #pragma omp simd
    for (i64 p = 0; p < a->num_pdfs; ++p)
      line[p] = nn_expf(nn_minf(nn_maxf(row[p], -HMM_LIMIT), HMM_LIMIT));
    for (i64 p = 0; p < a->num_pdfs; ++p) ((f32 *)(x + p))[l] = line[p];
  }
}

static void hmm_block(const leaky_hmm_arguments *arguments, i64 block, u8 *memory) {
  const leaky_hmm_arguments a = *arguments; /* a copy, which no store below may change */
  const i64 states = a.num_states, pdfs = a.num_pdfs, frames = a.num_frames, groups = a.num_groups;
  const i64 first = block * HMM_LANES, count = NN_LEAST(HMM_LANES, a.num_sequences - first);
  hmm_vec *const alpha = (hmm_vec *)memory, *const beta = alpha;
  hmm_vec *const now = alpha + states, *const x = now + states, *const found = x + pdfs;
  hmm_vec *const z = found + pdfs, *const totals = z + groups;
  f32 *const line = (f32 *)(totals + frames), *const kept = line + (pdfs + 15) / 16 * 16;
  f64 sum[HMM_LANES], logs[HMM_LANES], product[HMM_LANES], posteriors[HMM_LANES];
  for (i64 l = 0; l < HMM_LANES; ++l) logs[l] = product[l] = posteriors[l] = 0.0;
  for (i64 i = 0; i < states; ++i) alpha[i] = HMM_ALL(a.initial[i]);
  for (i64 t = 0; t < frames; ++t) {
    hmm_sums(sum, alpha, 0, states);
    hmm_vec total;
    for (i64 l = 0; l < HMM_LANES; ++l) total[l] = (f32)sum[l];
    for (i64 l = 0; l < count; ++l) logs[l] += log((f64)total[l]);
    totals[t] = total;
    const hmm_vec part = HMM_ALL(1.0f) / total;
    f32 *const keep = kept + (a.deriv ? t * states * count : 0);
    for (i64 i = 0; i < states; ++i) {
      now[i] = alpha[i] * part + HMM_ALL(a.leaks[i]);
      /* the next states' numbers overwrite the copies at the end */
      if (a.deriv) *(hmm_packed *)(keep + i * count) = now[i];
    }
    hmm_load(&a, x, line, t, first, count);
    for (i64 i = 0; i < states; ++i) {
      hmm_vec all = {0};
      for (i64 g = a.state_groups[i]; g < a.state_groups[i + 1]; ++g) {
        hmm_vec some = {0};
        for (i64 k = a.group_arcs[g]; k < a.group_arcs[g + 1]; ++k)
          some += HMM_ALL(a.probs[k]) * now[a.sources[k]];
        all += some * x[a.group_pdfs[g]];
      }
      alpha[i] = all;
    }
  }
  hmm_sums(sum, alpha, 0, states);
  hmm_vec last;
  for (i64 l = 0; l < HMM_LANES; ++l) {
    const f64 final = (f64)(f32)sum[l] * a.final_factor;
    logs[l] += log(final);
    last[l] = (f32)(1.0 / final);
  }
  if (a.deriv) {
    const f32 weight = (f32)a.weight;
    for (i64 i = 0; i < states; ++i) beta[i] = last;
    for (i64 t = frames - 1; t >= 0; --t) {
      hmm_load(&a, x, line, t, first, count);
      hmm_sums(sum, beta, a.leaks, states);
      hmm_vec more;
      for (i64 l = 0; l < HMM_LANES; ++l) more[l] = (f32)sum[l];
      for (i64 g = 0; g < groups; ++g)
        z[g] = x[a.group_pdfs[g]] * (beta[a.group_states[g]] + more);
      for (i64 p = 0; p < pdfs; ++p) found[p] = HMM_ALL(0.0f);
      const hmm_vec part = HMM_ALL(1.0f) / totals[t];
      const f32 *const keep = kept + t * states * count;
      for (i64 i = 0; i < states; ++i) {
        const hmm_vec before = *(const hmm_packed *)(keep + i * count);
        hmm_vec all = {0};
        for (i64 k = a.state_arcs[i]; k < a.state_arcs[i + 1]; ++k) {
          const hmm_vec through = HMM_ALL(a.back_probs[k]) * z[a.arc_groups[k]];
          all += through;
          found[a.arc_pdfs[k]] += through * before;
        }
        beta[i] = all * part;
      }
      for (i64 l = 0; l < count; ++l) {
        f32 *const row = a.deriv + (t * a.num_sequences + first + l) * a.deriv_stride;
        for (i64 p = 0; p < pdfs; ++p) line[p] = ((const f32 *)(found + p))[l];
        #pragma omp simd
        for (i64 p = 0; p < pdfs; ++p) row[p] += weight * line[p];
        if (t == 0) for (i64 p = 0; p < pdfs; ++p) posteriors[l] += line[p];
      }
    }
    for (i64 i = 0; i < states; ++i)
      for (i64 l = 0; l < count; ++l)
        product[l] += (f64)a.initial[i] * (1.0 + a.leak * totals[0][l]) * beta[i][l];
  }
  for (i64 l = 0; l < count; ++l) {
    f64 *const own = a.results + (first + l) * HMM_RESULTS;
    own[HMM_LOG_PROB] = logs[l];
    own[HMM_ALPHA_BETA] = product[l];
    own[HMM_POSTERIOR_SUM] = posteriors[l];
  }
}

void leaky_hmm(const leaky_hmm_arguments *a, i64 begin, i64 end) {
  for (i64 step = begin; step < end; ++step) {
    const i64 last = NN_LEAST((step + 1) * a->blocks_per_step, a->num_blocks);
    for (i64 block = step * a->blocks_per_step; block < last; ++block)
      hmm_block(a, block, a->memory + step * a->memory_stride);
  }
}

typedef struct {
  f64 *results;         /* (HMM_RESULTS,) */
  const f64 *sequences; /* (num_sequences, HMM_RESULTS) */
  i64 num_sequences;
} leaky_hmm_totals_arguments;

void leaky_hmm_totals(const leaky_hmm_totals_arguments *a, i64 begin, i64 end) {
  for (i64 k = begin; k < end; ++k) {
    f64 sum = 0.0;
    for (i64 n = 0; n < a->num_sequences; ++n) sum += a->sequences[HMM_RESULTS * n + k];
    a->results[k] = sum;
  }
}
