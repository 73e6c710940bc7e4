/* Determinization of lattices with pruning. It gives the same lattices as determinization.py, which
   explains the algorithm: with the same decisions and additions in the same order, weights in single
   precision and costs of paths in double precision.

   A subset is one block of memory. The queue owns it first, then the table of subsets before closure
   or an output state. */

typedef struct {
  int64_t num_states, num_arcs;
  int64_t *first;                /* (N + 1) the arcs of state s are first[s] to first[s + 1] - 1 */
  int32_t *labels, *targets;     /* (A) */
  float *graph, *acoustic;       /* (A) */
  float *final_graph, *final_acoustic; /* (N) infinite for a state that is not final */
  int64_t *string_first;         /* (A + N + 1) the ids of arcs, then those of final weights */
  int32_t *ids;
} lattice;

/* -- subsets */

typedef struct { float graph, acoustic; int32_t state, string; } element;
typedef struct { int64_t size; element of[]; } subset;

static subset *new_subset(int64_t size) {
  subset *s = malloc(sizeof *s + (size_t)size * sizeof(element));
  if (s) s->size = size;
  return s;
}

static uint64_t hash_of(const subset *s) {
  uint64_t hash = (uint64_t)s->size;
  for (int64_t i = 0; i < s->size; i++) {
    uint64_t key = (uint64_t)(uint32_t)s->of[i].state << 32 | (uint32_t)s->of[i].string;
    hash = mixed(hash + key);
  }
  return hash;
}

static double cost_of(float graph, float acoustic) { return (double)graph + (double)acoustic; }

/* Positive if the first weight is better (Kaldi's Compare of lattice weights). */
static int better(float graph, float acoustic, const element *other) {
  float total = graph + acoustic, other_total = other->graph + other->acoustic;
  if (total != other_total) return total < other_total ? 1 : -1;
  return graph == other->graph ? 0 : graph < other->graph ? 1 : -1;
}

static int is_close(const element *one, const element *other, double delta) {
  if (one->graph == other->graph && one->acoustic == other->acoustic) return YES;
  return fabsf((one->graph + one->acoustic) - (other->graph + other->acoustic)) <= (float)delta;
}

/* Whether states and sequences are equal, and total costs equal up to the tolerance. */
static int is_equal(const subset *one, const subset *other, double delta) {
  if (one->size != other->size) return NO;
  for (int64_t i = 0; i < one->size; i++)
    if (one->of[i].state != other->of[i].state || one->of[i].string != other->of[i].string) return NO;
  for (int64_t i = 0; i < one->size; i++)
    if (!is_close(one->of + i, other->of + i, delta)) return NO;
  return YES;
}

static int by_state(const void *one, const void *other) {
  int32_t a = ((const element *)one)->state, b = ((const element *)other)->state;
  return (a > b) - (a < b);
}

/* -- the state of a determinization */

typedef struct {
  float graph, acoustic;
  const int32_t *ids;
  int32_t num_ids, label, target;
} arc;

typedef struct { subset *members; uint64_t hash; } hashed; /* common head of the next two structs */

typedef struct {
  subset *members;
  uint64_t hash;
  double forward_cost;
  float final_graph, final_acoustic; /* infinite: not final */
  int32_t final_string;
} output_state;

typedef struct { float graph, acoustic; int32_t source, label, target, string; } output_arc;
typedef struct { subset *members; uint64_t hash; element rest; int32_t state; } initial_subset;
typedef struct { double cost; subset *members; int32_t state, label; } task;

/* The element after an arc with a label, and the cost of the best path through all elements that lead to
   the same state. Its sequence is computed only when it is needed. */
typedef struct { element made; const arc *by; double cost; int64_t place; int32_t before, label; } candidate;

/* A hash table. In each chain the latest entry comes first, so it is found first among equal ones. */
typedef struct { growing entries, next; int32_t *table; int64_t table_size; } subset_table;

typedef struct {
  const lattice *in;
  double delta, beam, best, cutoff;
  int64_t max_memory;
  double *backward;                        /* (N) the cost of the best path to the end */
  arc *epsilon, *labelled;                 /* the arcs of each kind, state after state */
  int64_t *epsilon_first, *labelled_first; /* (N + 1) */
  string_tree strings;
  growing work;          /* element: the subset under closure */
  int32_t *place;        /* (N) place of a state in `work`; valid only if its stamp equals `today` */
  uint32_t *stamp, today;
  int32_t *waiting;      /* (N) a heap of states whose epsilon arcs must still be followed */
  growing candidates;    /* candidate */
  int32_t *candidate_table;
  int64_t candidate_table_size;
  subset_table minimal, initial; /* output_state; initial_subset */
  growing arcs;                  /* output_arc */
  growing queue;                 /* task: a heap by cost */
  int64_t num_finals, num_elements, num_ids; /* counted for Kaldi's memory limit */
} determinizer;

static output_state *states_of(const determinizer *d) { return d->minimal.entries.data; }

static const arc *arcs_of(const arc *all, const int64_t *first, int32_t state, const arc **end) {
  *end = all + first[state + 1];
  return all + first[state];
}

static int is_final(const lattice *in, int32_t state) { return in->final_graph[state] != INFINITY; }

/* -- elements */

/* Whether the element after an arc from `from` is better than `other` (which may be NULL). If so, `out`,
   which may be `other`, gets it. */
static int followed(string_tree *t, const element *from, const arc *by, const element *other, element *out) {
  float graph = from->graph + by->graph, acoustic = from->acoustic + by->acoustic;
  int by_weight = other ? better(graph, acoustic, other) : 1;
  if (by_weight < 0) return NO;
  int32_t string = with_ids(t, from->string, by->ids, by->num_ids);
  if (string < 0) return FAILED;
  if (!by_weight && !is_preferred(t, string, other->string)) return NO;
  *out = (element){graph, acoustic, by->target, string};
  return YES;
}

static void push_waiting(int32_t *heap, int64_t size, int32_t state) {
  int64_t at = size;
  for (; at > 0 && heap[(at - 1) / 2] > state; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = state;
}

static int32_t pop_waiting(int32_t *heap, int64_t size) {
  int32_t least = heap[0], last = heap[size - 1];
  int64_t at = 0;
  for (int64_t child = 1; child < size - 1; child = 2 * at + 1) {
    if (child + 1 < size - 1 && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= last) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = last;
  return least;
}

static void begin_work(determinizer *d) {
  d->work.size = 0;
  if (++d->today == 0) { /* once in 4 billion times */
    memset(d->stamp, 0, (size_t)d->in->num_states * sizeof *d->stamp);
    d->today = 1;
  }
}

static int add_to_work(determinizer *d, const element *e, int64_t *num_waiting) {
  element *place = added(&d->work, 1);
  if (!place) return FAILED;
  *place = *e;
  d->stamp[e->state] = d->today;
  d->place[e->state] = (int32_t)(d->work.size - 1);
  if (d->epsilon_first[e->state + 1] > d->epsilon_first[e->state])
    push_waiting(d->waiting, (*num_waiting)++, e->state);
  return YES;
}

/* Put the subset and all states reachable by epsilon arcs into `work`. States leave the heap in
   topological order, so the element of each is final when its arcs are followed. */
static int closure(determinizer *d, const subset *s) {
  int64_t num_waiting = 0;
  begin_work(d);
  for (int64_t i = 0; i < s->size; i++)
    if (add_to_work(d, s->of + i, &num_waiting) < 0) return FAILED;
  while (num_waiting) {
    int32_t state = pop_waiting(d->waiting, num_waiting--);
    element from = ((element *)d->work.data)[d->place[state]];
    const arc *end, *by = arcs_of(d->epsilon, d->epsilon_first, state, &end);
    for (; by < end; by++) {
      int is_known = d->stamp[by->target] == d->today;
      element *other = is_known ? (element *)d->work.data + d->place[by->target] : NULL, made;
      int result = followed(&d->strings, &from, by, other, &made);
      if (result < 0) return FAILED;
      if (result == NO) continue;
      if (is_known) *other = made;
      else if (add_to_work(d, &made, &num_waiting) < 0) return FAILED;
    }
  }
  return YES;
}

/* The states of `work` that are final or have arcs with labels, in order. */
static subset *minimal_form(determinizer *d) {
  element *work = d->work.data;
  int64_t size = 0;
  for (int64_t i = 0; i < d->work.size; i++) {
    int32_t state = work[i].state;
    if (d->labelled_first[state + 1] > d->labelled_first[state] || is_final(d->in, state))
      work[size++] = work[i];
  }
  qsort(work, (size_t)size, sizeof *work, by_state);
  subset *s = size ? new_subset(size) : NULL; /* a subset on a path to the end is not empty */
  if (s) memcpy(s->of, work, (size_t)size * sizeof *work);
  return s;
}

/* Divide a subset by its best weight and the common prefix of its sequences, which go to `rest`. */
static int normalize(determinizer *d, subset *s, element *rest) {
  string_tree *t = &d->strings;
  *rest = s->of[0];
  int32_t beginning = rest->string;
  for (int64_t i = 1; i < s->size; i++) {
    const element *e = s->of + i;
    beginning = common_beginning(t, beginning, e->string);
    if (better(e->graph, e->acoustic, rest) > 0) *rest = *e;
  }
  rest->string = beginning;
  int32_t length = nodes_of(t)[beginning].length;
  for (int64_t i = 0; i < s->size; i++) {
    element *e = s->of + i;
    e->graph -= rest->graph;
    e->acoustic -= rest->acoustic;
    if (!length) continue;
    int32_t count = nodes_of(t)[e->string].length - length;
    const int32_t *ids = ids_after(t, e->string, length);
    if (!ids || (e->string = with_ids(t, 0, ids, count)) < 0) return FAILED;
  }
  return YES;
}

/* -- tables of subsets */

static uint64_t hash_in(const subset_table *t, int32_t entry) {
  return ((const hashed *)((const char *)t->entries.data + (size_t)entry * t->entries.each))->hash;
}

static void enter(subset_table *t, int32_t entry, uint64_t hash) {
  int32_t *head = t->table + ((int64_t)hash & (t->table_size - 1));
  ((int32_t *)t->next.data)[entry] = *head;
  *head = entry;
}

/* Add the latest entry to the table, and enlarge the table if necessary. */
static int enter_latest(subset_table *t) {
  int32_t latest = (int32_t)(t->entries.size - 1);
  if (!added(&t->next, 1)) return FAILED;
  if (t->entries.size <= t->table_size) {
    enter(t, latest, hash_in(t, latest));
    return YES;
  }
  int32_t *table = table_of(t->table_size * 2);
  if (!table) return FAILED;
  free(t->table);
  t->table = table;
  t->table_size *= 2;
  for (int32_t i = 0; i <= latest; i++) enter(t, i, hash_in(t, i));
  return YES;
}

static int32_t first_in(const subset_table *t, uint64_t hash) {
  return t->table[(int64_t)hash & (t->table_size - 1)];
}

static int32_t next_in(const subset_table *t, int32_t entry) { return ((int32_t *)t->next.data)[entry]; }

static int start_table(subset_table *t, size_t each) {
  t->entries.each = each;
  t->next.each = sizeof(int32_t);
  t->table_size = 1024;
  t->table = table_of(t->table_size);
  return t->table ? YES : FAILED;
}

/* -- output states and their arcs */

/* Set the final weight to the best of the subset, if that is within the beam. */
static int set_final(determinizer *d, output_state *state) {
  const lattice *in = d->in;
  element best;
  int has_one = NO;
  for (int64_t i = 0; i < state->members->size; i++) {
    const element *member = state->members->of + i;
    if (!is_final(in, member->state)) continue;
    int64_t string = in->num_arcs + member->state, begin = in->string_first[string];
    arc by = {in->final_graph[member->state], in->final_acoustic[member->state], in->ids + begin,
              (int32_t)(in->string_first[string + 1] - begin), 0, 0};
    int result = followed(&d->strings, member, &by, has_one ? &best : NULL, &best);
    if (result < 0) return FAILED;
    has_one |= result;
  }
  state->final_graph = state->final_acoustic = INFINITY;
  if (has_one && cost_of(best.graph, best.acoustic) + state->forward_cost <= d->cutoff) {
    state->final_graph = best.graph;
    state->final_acoustic = best.acoustic;
    state->final_string = best.string;
    d->num_finals++;
  }
  return YES;
}

static int resolve(string_tree *t, candidate *c) {
  if (c->made.string < 0) c->made.string = with_ids(t, c->before, c->by->ids, c->by->num_ids);
  return c->made.string < 0 ? FAILED : YES;
}

/* Add the candidate of an element and an arc. For each label and target only the best is kept. */
static int add_candidate(determinizer *d, const element *from, const arc *by) {
  float graph = from->graph + by->graph, acoustic = from->acoustic + by->acoustic;
  double cost = cost_of(graph, acoustic) + d->backward[by->target];
  candidate made = {{graph, acoustic, by->target, -1}, by, cost, 0, from->string, by->label};
  int64_t mask = d->candidate_table_size - 1;
  int64_t place = (int64_t)mixed((uint64_t)(uint32_t)by->label << 32 | (uint32_t)by->target) & mask;
  candidate *all = d->candidates.data;
  for (; d->candidate_table[place] >= 0; place = (place + 1) & mask) {
    candidate *other = all + d->candidate_table[place];
    if (other->label != by->label || other->made.state != by->target) continue;
    if (cost > other->cost) made.cost = other->cost;
    other->cost = made.cost;
    int by_weight = better(graph, acoustic, &other->made);
    if (!by_weight) {
      if (resolve(&d->strings, &made) < 0 || resolve(&d->strings, other) < 0) return FAILED;
      by_weight = is_preferred(&d->strings, made.made.string, other->made.string) ? 1 : -1;
    }
    made.place = place;
    if (by_weight > 0) *other = made;
    return YES;
  }
  made.place = place;
  d->candidate_table[place] = (int32_t)d->candidates.size;
  all[d->candidates.size++] = made; /* memory was reserved before */
  return YES;
}

static int by_label(const void *one, const void *other) {
  const candidate *a = one, *b = other;
  if (a->label != b->label) return a->label < b->label ? -1 : 1;
  return by_state(&a->made, &b->made);
}

/* The candidates of a subset and all arcs with labels, sorted by label and target. */
static int find_candidates(determinizer *d, const subset *members) {
  int64_t count = 0;
  for (int64_t i = 0; i < members->size; i++) {
    int32_t state = members->of[i].state;
    count += d->labelled_first[state + 1] - d->labelled_first[state];
  }
  int64_t size = power_of_two(2 * count);
  d->candidates.size = 0;
  if (count >= INT32_MAX || !room(&d->candidates, count + 1)) return FAILED;
  if (size > d->candidate_table_size) {
    free(d->candidate_table);
    d->candidate_table = table_of(size);
    d->candidate_table_size = size;
    if (!d->candidate_table) return FAILED;
  }
  for (int64_t i = 0; i < members->size; i++) {
    const arc *end, *by = arcs_of(d->labelled, d->labelled_first, members->of[i].state, &end);
    for (; by < end; by++)
      if (add_candidate(d, members->of + i, by) < 0) return FAILED;
  }
  candidate *all = d->candidates.data;
  for (int64_t i = 0; i < d->candidates.size; i++) d->candidate_table[all[i].place] = -1;
  qsort(all, (size_t)d->candidates.size, sizeof *all, by_label);
  return YES;
}

/* Tasks are compared by cost only. The heap works as Python's heapq and pops equal tasks in the same
   order as C++'s priority_queue, so states get Kaldi's numbers. */
static void move_up(task *heap, int64_t at, task moved) {
  for (; at > 0 && moved.cost < heap[(at - 1) >> 1].cost; at = (at - 1) >> 1)
    heap[at] = heap[(at - 1) >> 1];
  heap[at] = moved;
}

static task pop_task(growing *queue) {
  task *heap = queue->data, first = heap[0], last = heap[--queue->size];
  int64_t at = 0, size = queue->size;
  if (!size) return first;
  for (int64_t child = 1; child < size; child = 2 * at + 1) {
    if (child + 1 < size && !(heap[child].cost < heap[child + 1].cost)) child++;
    heap[at] = heap[child];
    at = child;
  }
  move_up(heap, at, last);
  return first;
}

/* Queue a task for the candidates [begin, end), which have one label, if a path is in the beam. */
static int plan_arc(determinizer *d, int32_t number, int64_t begin, int64_t end) {
  candidate *all = d->candidates.data;
  double cost = INFINITY;
  for (int64_t i = begin; i < end; i++)
    if (all[i].cost < cost) cost = all[i].cost;
  cost += states_of(d)[number].forward_cost;
  if (!(cost <= d->cutoff && cost < INFINITY)) return YES; /* dead ends, with an infinite beam */
  subset *members = new_subset(end - begin);
  task *place = room(&d->queue, 1);
  if (!members || !place) {
    free(members);
    return FAILED;
  }
  int result = YES;
  for (int64_t i = begin; i < end; i++) {
    if (resolve(&d->strings, all + i) < 0) result = FAILED;
    members->of[i - begin] = all[i].made;
  }
  move_up(d->queue.data, d->queue.size++, (task){cost, members, number, all[begin].label});
  return result;
}

static int plan_arcs(determinizer *d, int32_t number) {
  if (find_candidates(d, states_of(d)[number].members) < 0) return FAILED;
  const candidate *all = d->candidates.data;
  for (int64_t begin = 0, end; begin < d->candidates.size; begin = end) {
    for (end = begin + 1; end < d->candidates.size && all[end].label == all[begin].label;) end++;
    if (plan_arc(d, number, begin, end) < 0) return FAILED;
  }
  return YES;
}

/* The output state of a subset in minimal form. It takes ownership of the subset. FAILED: no memory. */
static int32_t state_of_minimal(determinizer *d, subset *members, double forward_cost) {
  subset_table *t = &d->minimal;
  uint64_t hash = hash_of(members);
  for (int32_t at = first_in(t, hash); at >= 0; at = next_in(t, at)) {
    const output_state *known = states_of(d) + at;
    if (known->hash == hash && is_equal(members, known->members, d->delta)) {
      free(members);
      return at;
    }
  }
  int32_t number = (int32_t)t->entries.size;
  output_state *state = number < INT32_MAX ? added(&t->entries, 1) : NULL;
  if (!state) {
    free(members);
    return FAILED;
  }
  *state = (output_state){members, hash, forward_cost, INFINITY, INFINITY, 0};
  d->num_elements += members->size;
  if (enter_latest(t) < 0 || set_final(d, state) < 0) return FAILED;
  return plan_arcs(d, number) < 0 ? FAILED : number;
}

/* The output state of a normalized subset before closure, of which it takes ownership. `rest` gets the
   remaining weight. */
static int32_t state_of_initial(determinizer *d, subset *s, double forward_cost, element *rest) {
  subset_table *t = &d->initial;
  uint64_t hash = hash_of(s);
  for (int32_t at = first_in(t, hash); at >= 0; at = next_in(t, at)) {
    const initial_subset *known = (const initial_subset *)t->entries.data + at;
    if (known->hash == hash && is_equal(s, known->members, d->delta)) {
      *rest = known->rest;
      free(s);
      return known->state;
    }
  }
  initial_subset *entry = t->entries.size < INT32_MAX ? added(&t->entries, 1) : NULL;
  if (!entry) {
    free(s);
    return FAILED;
  }
  *entry = (initial_subset){s, hash, {0.0f, 0.0f, 0, 0}, -1};
  subset *members = closure(d, s) < 0 ? NULL : minimal_form(d);
  if (!members || normalize(d, members, rest) < 0) {
    free(members);
    return FAILED;
  }
  int32_t state = state_of_minimal(d, members, forward_cost + cost_of(rest->graph, rest->acoustic));
  entry->rest = *rest;
  entry->state = state;
  d->num_elements += s->size;
  return state < 0 || enter_latest(t) < 0 ? FAILED : state;
}

/* -- running */

/* Add the output arc of a task, and its target state if it is new. */
static int do_task(determinizer *d, task t) {
  element weight, rest;
  if (normalize(d, t.members, &weight) < 0) {
    free(t.members);
    return FAILED;
  }
  double forward_cost = states_of(d)[t.state].forward_cost + cost_of(weight.graph, weight.acoustic);
  int32_t target = state_of_initial(d, t.members, forward_cost, &rest);
  if (target < 0) return FAILED;
  float graph = weight.graph + rest.graph, acoustic = weight.acoustic + rest.acoustic;
  const int32_t *ids = ids_after(&d->strings, rest.string, 0);
  int32_t count = nodes_of(&d->strings)[rest.string].length;
  int32_t string = ids ? with_ids(&d->strings, weight.string, ids, count) : FAILED;
  output_arc *place = added(&d->arcs, 1);
  if (string < 0 || !place) return FAILED;
  *place = (output_arc){graph, acoustic, t.state, t.label, target, string};
  d->num_ids += nodes_of(&d->strings)[string].length;
  return YES;
}

/* Whether the memory limit is reached, with Kaldi's sizes of an arc, an element and an id. */
static int is_out_of_memory(const determinizer *d) {
  int64_t used = 32 * (d->arcs.size + d->num_finals) + 24 * d->num_elements + 48 * d->num_ids;
  return 0 < d->max_memory && d->max_memory < used;
}

/* Determinize; `reached` gets the beam that was reached. */
static int run_all(determinizer *d, double *reached) {
  *reached = d->beam;
  if (!d->in->num_states || d->best == INFINITY) return YES;
  subset *start = new_subset(1);
  if (!start) return FAILED;
  start->of[0] = (element){0.0f, 0.0f, 0, 0};
  subset *members = closure(d, start) < 0 ? NULL : minimal_form(d);
  free(start);
  if (!members || state_of_minimal(d, members, 0.0) < 0) return FAILED;
  while (d->queue.size) {
    if (d->minimal.entries.size % 10 == 0 && is_out_of_memory(d)) {
      *reached = ((task *)d->queue.data)->cost - d->best;
      return YES;
    }
    if (do_task(d, pop_task(&d->queue)) < 0) return FAILED;
  }
  return YES;
}

/* Compute the cost of the best path from each state to the end. */
static void find_backward_costs(determinizer *d) {
  const lattice *in = d->in;
  for (int64_t s = in->num_states - 1; s >= 0; s--) {
    double best = is_final(in, (int32_t)s) ? cost_of(in->final_graph[s], in->final_acoustic[s]) : INFINITY;
    for (int64_t a = in->first[s]; a < in->first[s + 1]; a++) {
      double whole = cost_of(in->graph[a], in->acoustic[a]) + d->backward[in->targets[a]];
      if (whole < best) best = whole;
    }
    d->backward[s] = best;
  }
  d->best = in->num_states ? d->backward[0] : INFINITY;
  d->cutoff = d->best + d->beam;
}

/* Separate the arcs with labels from those without, in order. */
static void split_arcs(determinizer *d) {
  const lattice *in = d->in;
  int64_t num_epsilon = 0, num_labelled = 0;
  for (int64_t s = 0; s < in->num_states; s++) {
    d->epsilon_first[s] = num_epsilon;
    d->labelled_first[s] = num_labelled;
    for (int64_t a = in->first[s]; a < in->first[s + 1]; a++) {
      int64_t begin = in->string_first[a];
      arc *place = in->labels[a] ? d->labelled + num_labelled++ : d->epsilon + num_epsilon++;
      *place = (arc){in->graph[a], in->acoustic[a], in->ids + begin,
                     (int32_t)(in->string_first[a + 1] - begin), in->labels[a], in->targets[a]};
    }
  }
  d->epsilon_first[in->num_states] = num_epsilon;
  d->labelled_first[in->num_states] = num_labelled;
}

static int start_determinizer(determinizer *d) {
  size_t states = (size_t)d->in->num_states + 1, arcs = (size_t)d->in->num_arcs + 1;
  d->backward = malloc(states * sizeof *d->backward);
  d->epsilon = malloc(arcs * sizeof *d->epsilon);
  d->labelled = malloc(arcs * sizeof *d->labelled);
  d->epsilon_first = malloc(states * sizeof *d->epsilon_first);
  d->labelled_first = malloc(states * sizeof *d->labelled_first);
  d->place = malloc(states * sizeof *d->place);
  d->waiting = malloc(states * sizeof *d->waiting);
  d->stamp = calloc(states, sizeof *d->stamp);
  d->work.each = sizeof(element);
  d->candidates.each = sizeof(candidate);
  d->arcs.each = sizeof(output_arc);
  d->queue.each = sizeof(task);
  if (!d->backward || !d->epsilon || !d->labelled || !d->epsilon_first || !d->labelled_first ||
      !d->place || !d->waiting || !d->stamp || start_strings(&d->strings) < 0 ||
      start_table(&d->minimal, sizeof(output_state)) < 0 ||
      start_table(&d->initial, sizeof(initial_subset)) < 0)
    return FAILED;
  find_backward_costs(d);
  split_arcs(d);
  return YES;
}

static void free_determinizer(determinizer *d) {
  for (int64_t i = 0; i < d->minimal.entries.size; i++) free(states_of(d)[i].members);
  for (int64_t i = 0; i < d->initial.entries.size; i++)
    free(((initial_subset *)d->initial.entries.data)[i].members);
  for (int64_t i = 0; i < d->queue.size; i++) free(((task *)d->queue.data)[i].members);
  void *all[] = {
      d->backward, d->epsilon, d->labelled, d->epsilon_first, d->labelled_first, d->place, d->waiting,
      d->stamp, d->strings.nodes.data, d->strings.table, d->strings.scratch.data, d->work.data,
      d->candidates.data, d->candidate_table, d->minimal.entries.data, d->minimal.next.data,
      d->minimal.table, d->initial.entries.data, d->initial.next.data, d->initial.table, d->arcs.data, d->queue.data,
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* -- the result, as arrays */

void nn_free_lattice(lattice *l) {
  void *all[] = {l->first, l->labels, l->targets, l->graph, l->acoustic,
                 l->final_graph, l->final_acoustic, l->string_first, l->ids};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  memset(l, 0, sizeof *l);
}

static int room_for_result(const determinizer *d, lattice *out) {
  size_t states = (size_t)out->num_states, arcs = (size_t)out->num_arcs;
  int64_t num_ids = d->num_ids;
  for (size_t s = 0; s < states; s++)
    if (states_of(d)[s].final_graph != INFINITY)
      num_ids += nodes_of(&d->strings)[states_of(d)[s].final_string].length;
  out->first = calloc(states + 2, sizeof *out->first);
  out->labels = malloc((arcs + 1) * sizeof *out->labels);
  out->targets = malloc((arcs + 1) * sizeof *out->targets);
  out->graph = malloc((arcs + 1) * sizeof *out->graph);
  out->acoustic = malloc((arcs + 1) * sizeof *out->acoustic);
  out->final_graph = malloc((states + 1) * sizeof *out->final_graph);
  out->final_acoustic = malloc((states + 1) * sizeof *out->final_acoustic);
  out->string_first = malloc((arcs + states + 1) * sizeof *out->string_first);
  out->ids = malloc(((size_t)num_ids + 1) * sizeof *out->ids);
  return out->first && out->labels && out->targets && out->graph && out->acoustic && out->final_graph &&
                 out->final_acoustic && out->string_first && out->ids
             ? YES : FAILED;
}

/* Append a sequence to the result. */
static void put_string(const string_tree *t, lattice *out, int64_t number, int32_t string) {
  int64_t at = out->string_first[number] + nodes_of(t)[string].length;
  out->string_first[number + 1] = at;
  for (; string; string = nodes_of(t)[string].parent) out->ids[--at] = nodes_of(t)[string].id;
}

/* Sort the arcs by state; a state's arcs stay in order of creation. */
static int copy_result(const determinizer *d, lattice *out) {
  const output_arc *arcs = d->arcs.data;
  out->num_states = d->minimal.entries.size;
  out->num_arcs = d->arcs.size;
  int64_t *order = malloc(((size_t)out->num_arcs + 1) * sizeof *order);
  if (!order || room_for_result(d, out) < 0) {
    free(order);
    return FAILED;
  }
  for (int64_t a = 0; a < out->num_arcs; a++) out->first[arcs[a].source + 2]++;
  for (int64_t s = 0; s < out->num_states; s++) out->first[s + 2] += out->first[s + 1];
  for (int64_t a = 0; a < out->num_arcs; a++) order[out->first[arcs[a].source + 1]++] = a;
  out->string_first[0] = 0;
  for (int64_t a = 0; a < out->num_arcs; a++) {
    const output_arc *from = arcs + order[a];
    out->labels[a] = from->label;
    out->targets[a] = from->target;
    out->graph[a] = from->graph;
    out->acoustic[a] = from->acoustic;
    put_string(&d->strings, out, a, from->string);
  }
  for (int64_t s = 0; s < out->num_states; s++) {
    const output_state *state = states_of(d) + s;
    out->final_graph[s] = state->final_graph;
    out->final_acoustic[s] = state->final_acoustic;
    put_string(&d->strings, out, out->num_arcs + s, state->final_graph == INFINITY ? 0 : state->final_string);
  }
  free(order);
  return YES;
}

/* Determinize `in`, whose states are in topological order, into `out`, which nn_free_lattice frees.
   `reached` gets the beam that was reached before max_memory was used up. */
int nn_determinize(const lattice *in, double beam, double delta, int64_t max_memory, lattice *out, double *reached) {
  determinizer *d = calloc(1, sizeof *d);
  if (!d) return FAILED;
  d->in = in;
  d->beam = beam;
  d->delta = delta;
  d->max_memory = max_memory;
  int result = start_determinizer(d);
  if (result >= 0) result = run_all(d, reached);
  memset(out, 0, sizeof *out);
  if (result >= 0) result = copy_result(d, out);
  if (result < 0) nn_free_lattice(out);
  free_determinizer(d);
  free(d);
  return result < 0 ? FAILED : YES;
}

/* `order` (N) gets the states in the topological order of fst.depth_first.top_order; `next` (N) and
   `way` (N) are scratch memory. NO if there is a cycle. */
int nn_top_order(int64_t num_states, const int64_t *first, const int32_t *targets, int64_t *next, int32_t *way,
                 int32_t *order) {
  int64_t left = num_states; /* states come off the way last to first */
  for (int64_t s = 0; s < num_states; s++) next[s] = -1;
  for (int64_t root = 0; root < num_states; root++) {
    if (next[root] >= 0) continue;
    int64_t depth = 0;
    way[0] = (int32_t)root;
    next[root] = first[root];
    while (depth >= 0) {
      int32_t state = way[depth];
      if (next[state] == first[state + 1]) {
        order[--left] = state;
        next[state] = INT64_MAX; /* finished */
        depth--;
        continue;
      }
      int32_t target = targets[next[state]++];
      if (next[target] == -1) {
        way[++depth] = target;
        next[target] = first[target];
      } else if (next[target] != INT64_MAX) {
        return NO;
      }
    }
  }
  return YES;
}
