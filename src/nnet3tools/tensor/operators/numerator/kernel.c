/* The numerator's forward-backward (formulas: __init__.py) in float64: frame by frame, arcs in the
   order given.

   The log-sums of all states of a frame are made together: the largest term of each state, exp of all
   terms less that (one vector loop over the arcs), their sums, and one log for each state. The
   posteriors take one further exp for each state: an arc's is its part of the state's sum. */

typedef struct {
  f64 *result;
  const f32 *output;
  f32 *deriv;               /* NULL, or like output */
  i64 num_frames, num_parts, num_finals;
  f64 weight;
  const i64 *which;         /* by frame: its list of arcs */
  const i64 *arc_offsets;   /* where each list begins, and ends */
  const i64 *first_states, *first_cells;
  const s32 *sources, *destinations, *cells;
  const f64 *costs;
  const i64 *starts, *finals;
  const f64 *final_costs;
  const i64 *final_parts;
  f64 *alpha;               /* by state */
  f64 *beta;                /* (2, most_states): of this frame and the next one */
  f64 *terms;               /* by arc of a frame */
  f64 *sums, *factors;      /* by state of a frame */
  f64 *totals;              /* by part */
  i64 most_states;
} numerator_arguments;

/* What one frame's sums are made of. */
typedef struct {
  i64 num_arcs, num_states, num_next;
  const s32 *source, *destination, *cell;
  const f64 *cost;
  const f32 *value;
  f64 *alpha, *next_alpha;
} num_frame;

static inline __attribute__((always_inline)) num_frame num_frame_at(const numerator_arguments *a, i64 t) {
  const i64 from = a->arc_offsets[a->which[t]];
  return (num_frame){
      a->arc_offsets[a->which[t] + 1] - from,
      a->first_states[t + 1] - a->first_states[t],
      a->first_states[t + 2] - a->first_states[t + 1],
      a->sources + from, a->destinations + from, a->cells + from,
      a->costs + from,
      a->output + a->first_cells[t],
      a->alpha + a->first_states[t], a->alpha + a->first_states[t + 1],
  };
}

/* exp of terms that are not above 0, by 2^k times Taylor's polynomial of |r| <= log(2) / 2: its
   twelfth degree leaves 2e-16. */
static inline __attribute__((always_inline)) void num_exp(f64 *terms, i64 count) {
  #pragma omp simd
  for (i64 k = 0; k < count; ++k) {
    const f64 v = terms[k], c = v < -708.0 ? -708.0 : v;
    const f64 sum = c * 1.4426950408889634 + 6755399441055744.0;
    const f64 n = sum - 6755399441055744.0;
    const f64 r = c - n * 0.693147180369123816490 - n * 1.90821492927058770002e-10;
    f64 q = 1.0 / 479001600;
    q = q * r + 1.0 / 39916800; q = q * r + 1.0 / 3628800; q = q * r + 1.0 / 362880;
    q = q * r + 1.0 / 40320; q = q * r + 1.0 / 5040; q = q * r + 1.0 / 720;
    q = q * r + 1.0 / 120; q = q * r + 1.0 / 24; q = q * r + 1.0 / 6;
    q = q * r + 0.5; q = q * r + 1.0; q = q * r + 1.0;
    i64 bits;
    f64 power;
    memcpy(&bits, &sum, 8);
    bits = (bits + 1023) << 52;
    memcpy(&power, &bits, 8);
    terms[k] = v < -708.0 ? 0.0 : q * power;
  }
}

/* For each of `states` the largest of the terms of its arcs, in `most` (0 if it has none), and the
   sum of exp(term - most), in `sums`; those exp stay in `terms`. `end` says which state an arc
   belongs to, `other` and `weights` give what is added to its score. */
static inline __attribute__((always_inline)) void num_log_sums(
    const num_frame *f, f64 *terms, f64 *most, f64 *sums, i64 states, const s32 *end,
    const s32 *other, const f64 *weights) {
  for (i64 s = 0; s < states; ++s) { most[s] = -INFINITY; sums[s] = 0.0; }
  for (i64 k = 0; k < f->num_arcs; ++k) {
    const f64 v = ((f64)f->value[f->cell[k]] - f->cost[k]) + weights[other[k]];
    terms[k] = v;
    if (v > most[end[k]]) most[end[k]] = v;
  }
  for (i64 s = 0; s < states; ++s) if (most[s] == -INFINITY) most[s] = 0.0;
  for (i64 k = 0; k < f->num_arcs; ++k) terms[k] -= most[end[k]];
  num_exp(terms, f->num_arcs);
  for (i64 k = 0; k < f->num_arcs; ++k) sums[end[k]] += terms[k];
}

/* log(sum), which most states need not compute: they have no path, or one. */
static inline __attribute__((always_inline)) f64 num_log(f64 sum) {
  return sum == 1.0 ? 0.0 : sum == 0.0 ? -INFINITY : log(sum);
}

static void num_forward(const numerator_arguments *arguments) {
  const numerator_arguments a = *arguments; /* a copy, which no store below may change */
  for (i64 s = 0; s < a.first_states[1]; ++s) a.alpha[s] = -INFINITY;
  for (i64 p = 0; p < a.num_parts; ++p) a.alpha[a.starts[p]] = 0.0;
  for (i64 t = 0; t < a.num_frames; ++t) {
    const num_frame f = num_frame_at(&a, t);
    num_log_sums(&f, a.terms, f.next_alpha, a.sums, f.num_next, f.destination, f.source, f.alpha);
    for (i64 s = 0; s < f.num_next; ++s) f.next_alpha[s] += num_log(a.sums[s]);
  }
  f64 *const totals = a.totals, *const sums = a.sums;
  for (i64 p = 0; p < a.num_parts; ++p) { totals[p] = -INFINITY; sums[p] = 0.0; }
  for (i64 i = 0; i < a.num_finals; ++i) {
    const f64 v = a.alpha[a.finals[i]] - a.final_costs[i];
    if (v > totals[a.final_parts[i]]) totals[a.final_parts[i]] = v;
  }
  for (i64 p = 0; p < a.num_parts; ++p) if (totals[p] == -INFINITY) totals[p] = 0.0;
  for (i64 i = 0; i < a.num_finals; ++i) {
    const i64 p = a.final_parts[i];
    sums[p] += exp(a.alpha[a.finals[i]] - a.final_costs[i] - totals[p]);
  }
  f64 total = 0.0;
  for (i64 p = 0; p < a.num_parts; ++p) total += totals[p] += log(sums[p]);
  *a.result = total;
}

static void num_backward(const numerator_arguments *arguments) {
  const numerator_arguments a = *arguments; /* a copy, which no store below may change */
  const i64 last = a.first_states[a.num_frames];
  f64 *const ending = a.beta + (a.num_frames & 1) * a.most_states;
  for (i64 s = last; s < a.first_states[a.num_frames + 1]; ++s) ending[s - last] = -INFINITY;
  for (i64 i = 0; i < a.num_finals; ++i)
    ending[a.finals[i] - last] = -a.final_costs[i] - a.totals[a.final_parts[i]];
  for (i64 t = a.num_frames - 1; t >= 0; --t) {
    f64 *const beta = a.beta + (t & 1) * a.most_states;
    const f64 *const next = a.beta + (~t & 1) * a.most_states;
    f32 *const found = a.deriv + a.first_cells[t];
    const num_frame f = num_frame_at(&a, t);
    num_log_sums(&f, a.terms, beta, a.sums, f.num_states, f.source, f.destination, next);
    for (i64 s = 0; s < f.num_states; ++s) {
      const int is_met = a.sums[s] != 0.0 && f.alpha[s] != -INFINITY;
      a.factors[s] = is_met ? a.weight * exp(f.alpha[s] + beta[s]) : 0.0;
      beta[s] += num_log(a.sums[s]);
    }
    for (i64 k = 0; k < f.num_arcs; ++k) found[f.cell[k]] += a.terms[k] * a.factors[f.source[k]];
  }
}

void numerator(const numerator_arguments *a, i64 begin, i64 end) {
  num_forward(a);
  if (a->deriv) num_backward(a);
}
