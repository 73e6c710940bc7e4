/* The best path through a lattice, as in traceback.py: weights are summed in single precision, and the
   first of equal paths to a state is kept. */

typedef struct { float graph, acoustic; } weight;

static weight sum_of(weight one, float graph, float acoustic) {
  return (weight){one.graph + graph, one.acoustic + acoustic};
}

static int is_less(weight one, weight other) {
  float total = one.graph + one.acoustic, other_total = other.graph + other.acoustic;
  return total < other_total || (total == other_total && one.graph < other.graph);
}

/* `entered` (N) gets the last arc of the best path to each state, -1 for none; `costs` (2 N) is scratch
   memory. Returns the state in which the best path ends, or -1 if a loop makes paths cheaper. States
   need not be in order. */
int64_t nn_best_path(int64_t num_states, const int64_t *offsets, const int32_t *targets, const float *graph,
                     const float *acoustic, const float *finals, weight *costs, int64_t *entered) {
  weight best = {INFINITY, INFINITY};
  int64_t last = 0;
  for (int64_t s = 0; s < num_states; s++) {
    costs[s] = best;
    entered[s] = -1;
  }
  costs[0] = (weight){0.0f, 0.0f};
  int64_t passes = 0;
  for (int again = YES; again; passes++) { /* one pass suffices if states are in order */
    if (passes > num_states) return -1;
    again = NO;
    for (int64_t s = 0; s < num_states; s++) {
      for (int64_t a = offsets[s]; a < offsets[s + 1]; a++) {
        weight found = sum_of(costs[s], graph[a], acoustic[a]);
        if (!is_less(found, costs[targets[a]])) continue;
        costs[targets[a]] = found;
        entered[targets[a]] = a;
        again |= targets[a] <= s;
      }
      weight whole = sum_of(costs[s], finals[s], 0.0f);
      if (!is_less(whole, best)) continue;
      best = whole;
      last = s;
    }
  }
  return last;
}
