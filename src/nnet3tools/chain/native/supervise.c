/* Acceptors of supervisions one after another: pieces of them, weights put on them, graphs made acceptors. */

typedef struct {
  int64_t at;                      /* where the FST begins in the data */
  int64_t first_frame, num_frames; /* of a piece */
  int64_t size;                    /* frames of what it is cut from; of a graph, arcs of its best path at most */
} job;

enum { WHOLE, PIECES, END_TO_END, GRAPHS, MERGED };

typedef struct {
  fst normalization; /* without states: none */
  int32_t *labels;   /* what a graph's labels become */
  int64_t num_labels;
  growing out, times, steps, queue;
  int can_cut; /* whether `times` is of `whole`; of a merged FST, whether `given` has all so far */
  fst whole, given, one, other;
  walks walks;
  epsilon_work epsilons;
  local_work local;
  subset_work subsets;
  minimize_work minimizing;
  compose_work composing;
  property_work properties;
} supervisor;

static const int64_t MAX_STATES = 200000;

/* The number of arcs before each state; NULL unless it is what SupervisionCutter cuts. */
static const int32_t *state_times(supervisor *w, const fst *f, int64_t num_frames) {
  int64_t size = num_states(f);
  int32_t *times = values(&w->times, size, sizeof *times), last = 0;
  int has_end = NO;
  if (!times || !size || f->start) return NULL;
  for (int64_t s = 0; s < size; s++) times[s] = s ? -1 : 0;
  for (int64_t s = 0; s < size; s++) {
    if (times[s] < last || (finals_of(f)[s] != INFINITY && times[s] != num_frames)) return NULL;
    last = times[s];
    has_end |= finals_of(f)[s] != INFINITY;
    for (int64_t a = first_of(f)[s]; a < first_of(f)[s + 1]; a++) {
      const arc *old = arcs_of(f) + a;
      if (old->ilabel == EPSILON || old->target <= s) return NULL;
      if (times[old->target] < 0) times[old->target] = last + 1;
      if (times[old->target] != last + 1) return NULL;
    }
  }
  return has_end ? times : NULL;
}

/* Some frames of it: epsilons from a new start to the states of the first, one new state at the end. */
static int cut(const fst *in, const int32_t *times, int64_t first_frame, int64_t num_frames, fst *out) {
  int64_t size = num_states(in), begin = 0, end;
  while (begin < size && times[begin] < first_frame) begin++;
  for (end = begin; end < size && times[end] < first_frame + num_frames;) end++;
  if (begin == end || !begin_fst(out, 0)) return NO;
  int64_t final = end - begin + 1;
  for (int64_t s = begin; s < end && times[s] == first_frame; s++) {
    if (!add_arc(out, EPSILON, EPSILON, 0.0f, s - begin + 1)) return NO;
  }
  if (!end_state(out, INFINITY)) return NO;
  for (int64_t s = begin; s < end; s++) {
    for (int64_t a = first_of(in)[s]; a < first_of(in)[s + 1]; a++) {
      const arc *old = arcs_of(in) + a;
      int64_t target = old->target >= end ? final : old->target - begin + 1;
      if (!add_arc(out, old->ilabel, old->ilabel, old->weight, target)) return NO;
    }
    if (!end_state(out, INFINITY)) return NO;
  }
  return end_state(out, 0.0f);
}

/* States numbered as a walk from the start meets them, breadth first; all can be reached. */
static int breadth_first(supervisor *w, const fst *in, fst *out) {
  int64_t size = num_states(in), count = 1;
  int32_t *numbers = values(&w->steps, size, sizeof *numbers), *queue = values(&w->queue, size, sizeof *queue);
  if (!numbers || !queue || !begin_fst(out, 0)) return NO;
  for (int64_t s = 0; s < size; s++) numbers[s] = -1;
  numbers[in->start] = 0;
  queue[0] = (int32_t)in->start;
  for (int64_t i = 0; i < count; i++) {
    int32_t s = queue[i];
    for (int64_t a = first_of(in)[s]; a < first_of(in)[s + 1]; a++) {
      const arc *old = arcs_of(in) + a;
      if (numbers[old->target] < 0) {
        numbers[old->target] = (int32_t)count;
        queue[count++] = old->target;
      }
      if (!add_arc(out, old->ilabel, old->ilabel, old->weight, numbers[old->target])) return NO;
    }
    if (!end_state(out, finals_of(in)[s])) return NO;
  }
  return count == size;
}

/* Append an acceptor to `given`; epsilons lead from its final states to the start of `next`, if there is one. */
static int append(supervisor *w, const uint8_t *data, const uint8_t *next) {
  if (!read_compact(&w->whole, data) || w->whole.start < 0) return NO;
  int64_t begin = num_states(&w->given), end = begin + num_states(&w->whole);
  for (int64_t s = 0; s < num_states(&w->whole); s++) {
    float final = finals_of(&w->whole)[s];
    if (next && final != INFINITY) {
      if (!add_arc(&w->given, EPSILON, EPSILON, final, end + start_of_compact(next))) return NO;
      final = INFINITY;
    }
    for (int64_t a = first_of(&w->whole)[s]; a < first_of(&w->whole)[s + 1]; a++) {
      const arc *old = arcs_of(&w->whole) + a;
      if (!add_arc(&w->given, old->ilabel, old->ilabel, old->weight, begin + old->target)) return NO;
    }
    if (!end_state(&w->given, final)) return NO;
  }
  return YES;
}

static int made_small(supervisor *w, const fst *in, fst *out) {
  return num_states(in) < MAX_STATES && determinize(&w->subsets, in, &w->other, MAX_STATES - 1) &&
         minimize(&w->minimizing, &w->other, out, &w->walks);
}

/* Normalizer.normalized of `given`, into `one`; NO if nothing is left. */
static int normalize(supervisor *w, int is_end_to_end) {
  if (!remove_epsilons(&w->epsilons, &w->given, &w->one)) return NO;
  if (is_end_to_end) {
    if (!compose(&w->composing, &w->one, &w->normalization, &w->other, &w->walks)) return NO;
    fst kept = w->one;
    w->one = w->other;
    w->other = kept;
    return num_states(&w->one) > 0;
  }
  if (!made_small(w, &w->one, &w->given)) return NO;
  if (!compose(&w->composing, &w->given, &w->normalization, &w->one, &w->walks)) return NO;
  if (!num_states(&w->one) || !made_small(w, &w->one, &w->given)) return NO;
  return num_states(&w->given) && breadth_first(w, &w->given, &w->one);
}

/* e2e.pdf_acceptor of `given`, into `one`. */
static int make_acceptor(supervisor *w) {
  if (!remove_epsilons_locally(&w->local, &w->given, &w->other, &w->walks)) return NO;
  if (!remove_epsilons(&w->epsilons, &w->other, &w->one)) return NO;
  for (int64_t a = 0; a < w->one.arcs.size; a++) {
    arc *old = arcs_of(&w->one) + a;
    if (old->ilabel <= EPSILON || old->ilabel >= w->num_labels) return NO;
    old->ilabel = old->olabel = w->labels[old->ilabel];
  }
  return num_states(&w->one) > 0;
}

/* Whether the path to the final state that is best by arcs and weight has so many arcs at most. */
static int is_short(supervisor *w, const fst *f, int64_t most) {
  int64_t size = num_states(f), count = 1, best = -1;
  int32_t *steps = values(&w->steps, size, sizeof *steps), *queue = values(&w->queue, size, sizeof *queue);
  double least_cost = INFINITY;
  if (!steps || !queue) return NO;
  for (int64_t s = 0; s < size; s++) steps[s] = -1;
  steps[f->start] = 0;
  queue[0] = (int32_t)f->start;
  for (int64_t i = 0; i < count; i++) {
    for (int64_t a = first_of(f)[queue[i]]; a < first_of(f)[queue[i] + 1]; a++) {
      int32_t target = arcs_of(f)[a].target;
      if (steps[target] >= 0) continue;
      steps[target] = steps[queue[i]] + 1;
      queue[count++] = target;
    }
  }
  for (int64_t s = 0; s < size; s++) {
    double cost = (double)steps[s] + (double)finals_of(f)[s];
    if (steps[s] < 0 || cost >= least_cost) continue;
    least_cost = cost;
    best = steps[s];
  }
  return best <= most;
}

static int write_result(supervisor *w, const fst *f) { return write_compact(&w->properties, f, &w->out, &w->walks); }

/* A piece of `whole`, of which `times` are those. */
static int make_piece(supervisor *w, const fst *whole, const int32_t *times, const job *j) {
  if (!cut(whole, times, j->first_frame, j->num_frames, &w->given)) return NO;
  if (!num_states(&w->normalization)) return write_result(w, &w->given);
  return normalize(w, NO) && write_result(w, &w->one);
}

static int make_end_to_end(supervisor *w, const job *j) {
  if (!make_acceptor(w) || !is_short(w, &w->one, j->size)) return NO;
  if (!num_states(&w->normalization)) return write_result(w, &w->one);
  fst kept = w->given;
  w->given = w->one;
  w->one = kept;
  return normalize(w, YES) && write_result(w, &w->one);
}

/* The acceptor of a job and, after the last one of its group, that of the whole group, into `other`. */
static int merge(supervisor *w, const uint8_t *data, const job *j) {
  int is_last = j->first_frame + 1 == j->size;
  const uint8_t *from = data + j->at, *next = is_last ? NULL : data + j[1].at;
  if (!j->first_frame) w->can_cut = begin_fst(&w->given, start_of_compact(from));
  w->can_cut = w->can_cut && append(w, from, next);
  return is_last && w->can_cut && remove_epsilons(&w->epsilons, &w->given, &w->one) && num_states(&w->one) &&
         breadth_first(w, &w->one, &w->other) && write_result(w, &w->other);
}

/* -- from outside */

/* One that adds the weights of an acceptor, sorted by label, if that has states; graphs' labels become
   those of `labels`. NULL for want of memory. */
supervisor *nn_supervisor_new(int64_t start, int64_t states, const float *finals, const int64_t *first,
                              const arc *arcs, int64_t num_labels, const int32_t *labels) {
  supervisor *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->labels = malloc((size_t)(num_labels + 1) * sizeof *labels);
  w->num_labels = num_labels;
  if (!w->labels || !begin_fst(&w->normalization, start)) goto failed;
  memcpy(w->labels, labels, (size_t)num_labels * sizeof *labels);
  for (int64_t s = 0; s < states; s++) {
    for (int64_t a = first[s]; a < first[s + 1]; a++) {
      if (!add_arc(&w->normalization, arcs[a].ilabel, arcs[a].ilabel, arcs[a].weight, arcs[a].target)) goto failed;
    }
    if (!end_state(&w->normalization, finals[s])) goto failed;
  }
  return w;
failed:
  free(w->labels);
  free_fst(&w->normalization);
  free(w);
  return NULL;
}

/* Makes what the jobs from `begin` to `end` ask for of the FSTs in the data, which are vector files for
   GRAPHS, else compact acceptors; those before them have been done. What job i made is in the output from
   ends[i] to ends[i + 1]; nothing if it was left. */
void nn_supervise(supervisor *w, int kind, const uint8_t *data, int64_t begin, int64_t end, const job *jobs,
                  int64_t *ends) {
  if (!begin) w->out.size = ends[0] = 0;
  for (int64_t i = begin; i < end; i++) {
    const job *j = jobs + i;
    const uint8_t *from = data + j->at;
    int is_made;
    if (kind == PIECES) {
      /* Pieces of one FST follow one another. */
      if (!i || j->at != jobs[i - 1].at) w->can_cut = read_compact(&w->whole, from) && state_times(w, &w->whole, j->size);
      is_made = w->can_cut && make_piece(w, &w->whole, w->times.data, j);
    } else if (kind == MERGED) {
      is_made = merge(w, data, j);
    } else if (kind == GRAPHS) {
      is_made = read_vector(&w->given, from) && make_end_to_end(w, j);
    } else {
      is_made = read_compact(&w->given, from) && normalize(w, kind == END_TO_END) && write_result(w, &w->one);
    }
    if (!is_made) w->out.size = ends[i];
    ends[i + 1] = w->out.size;
  }
}

const void *nn_supervisor_output(const supervisor *w) { return w->out.data; }

static void free_arrays(growing **arrays, size_t count) {
  for (size_t i = 0; i < count; i++) free(arrays[i]->data);
}

void nn_supervisor_free(supervisor *w) {
  fst *fsts[] = {&w->normalization, &w->whole, &w->given, &w->one, &w->other, &w->epsilons.whole,
                 &w->local.connected, &w->local.joined, &w->minimizing.connected, &w->composing.whole};
  for (size_t i = 0; i < sizeof fsts / sizeof *fsts; i++) free_fst(fsts[i]);
  for (int64_t s = 0; s < w->local.lists.size; s++) free(list_of(&w->local, s)->data);
  walks *all_walks[] = {&w->walks, &w->epsilons.walks};
  for (int i = 0; i < 2; i++) {
    walks *k = all_walks[i];
    growing *arrays[] = {&k->from_start, &k->to_end, &k->first, &k->neighbours, &k->stack, &k->numbers};
    free_arrays(arrays, sizeof arrays / sizeof *arrays);
  }
  epsilon_work *e = &w->epsilons;
  local_work *l = &w->local;
  subset_work *s = &w->subsets;
  minimize_work *m = &w->minimizing;
  property_work *p = &w->properties;
  growing *arrays[] = {
      &w->out, &w->times, &w->steps, &w->queue,
      &e->has_epsilons, &e->kept, &e->distances, &e->targets,
      &e->set.arcs, &e->set.table, &e->other.arcs, &e->other.table,
      &l->lists, &l->num_in, &l->num_out, &l->finals,
      &s->members, &s->begins, &s->table, &s->candidates, &s->fresh,
      &m->order, &m->waiting, &m->distances, &m->heights, &m->by_height, &m->class_of, &m->classes,
      &m->table, &m->same,
      &w->composing.pairs, &w->composing.table,
      &p->labels, &p->low, &p->entered, &p->component, &p->path, &p->places, &p->members,
  };
  free_arrays(arrays, sizeof arrays / sizeof *arrays);
  free(w->labels);
  free(w);
}
