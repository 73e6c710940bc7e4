/* A replay of Kaldi's graph search, as queue_search.QueueSearch: the number of cindexes after each hop.
   Dependencies come from the builder's rows, and from Python (`ask`) for cindexes that the builder did
   not explore. */

enum { STOPPED = -2, DONE = 0 }; /* FAILED: memory ran out; STOPPED: an error in Python */
enum { UNKNOWN, COMPUTABLE, NOT_COMPUTABLE };
enum { INPUT, NEEDS_ALL, BY_TABLE, BY_ASKING };  /* how to decide whether a node's cindexes are computable */

/* Dependencies of cindexes, rows padded with -1. NativeSearch keeps the arrays alive. */
typedef struct {
  int64_t num_asked, width;
  const int32_t *asked, *rows;
  int64_t num_cindexes;     /* number of cindexes, including new ones in the rows */
  const int32_t *new_nodes; /* nodes of the new cindexes */
} answer;

typedef struct {
  int64_t num_cindexes, num_outputs, max_hops;
  const int32_t *nodes, *slots; /* by cindex; slot -1: the builder has not explored it */
  const uint8_t *is_input;      /* by cindex */
  const int32_t *outputs;
  const int64_t *kinds;         /* by node */
  const int32_t *const *rows;   /* by node, the dependencies at each slot */
  const int64_t *widths;        /* by node, the width of its rows */
  const uint8_t *const *tables; /* by node, whether a cindex is computable, by the bits of its available leaves */
  int64_t (*ask)(int32_t cindex, answer *found); /* rows of this cindex and of others; < 0: an error */
  /* Whether a cindex can be computed from the available dependencies of its row; < 0: an error. */
  int64_t (*can)(int32_t cindex, const int32_t *row, const uint8_t *available, int64_t width);
} graph;

typedef struct {
  const int32_t *row;
  int32_t width; /* width of its row; -1: not known yet */
  int32_t node, first_user, last_user, first_needed, num_needed, usable, met;
  uint8_t status, queued, known, explored;
} cindex_facts;

typedef struct { int32_t user, next; } use;

typedef struct {
  const graph *g;
  growing all;    /* cindex_facts by cindex */
  growing uses;   /* lists of users in order of discovery */
  growing needed; /* rows without -1 and repetitions */
  growing queue, next, stack;
  growing available;
  int64_t num_known;
} search;

#define TRY(call) do { int64_t said_ = (call); if (said_ < 0) return said_; } while (0)

static int64_t add(growing *a, int32_t value) {
  int32_t *place = added(a, 1);
  if (!place) return FAILED;
  *place = value;
  return DONE;
}

static int32_t at(const growing *a, int64_t place) { return ((const int32_t *)a->data)[place]; }

static cindex_facts *facts_of(const search *s, int32_t cindex) {
  return (cindex_facts *)s->all.data + cindex;
}

static int64_t add_cindex(search *s, int32_t node) {
  cindex_facts *new = added(&s->all, 1);
  if (!new) return FAILED;
  *new = (cindex_facts){.width = -1, .node = node, .first_user = -1, .last_user = -1, .met = -1};
  return DONE;
}

static int64_t push(search *s, int32_t cindex) {
  cindex_facts *f = facts_of(s, cindex);
  if (f->queued) return DONE;
  f->queued = 1;
  return add(&s->next, cindex);
}

static int64_t discover(search *s, int32_t cindex) {
  facts_of(s, cindex)->known = 1;
  s->num_known++;
  return push(s, cindex);
}

/* -- usable counts: the number of usable users; with an explicit stack, because recurrences are deep */

static int64_t enter_up(search *s, int32_t cindex) {
  cindex_facts *f = facts_of(s, cindex);
  if (++f->usable != 1 || f->status == NOT_COMPUTABLE) return DONE;
  TRY(add(&s->stack, cindex));
  return add(&s->stack, 0); /* number of its dependencies visited so far */
}

static int64_t count_up(search *s, int32_t cindex) {
  cindex_facts *f = facts_of(s, cindex);
  if (f->usable > 0 || f->num_needed == 0) {
    f->usable++;
    return f->usable == 1 && f->status == UNKNOWN ? push(s, cindex) : DONE;
  }
  s->stack.size = 0;
  TRY(enter_up(s, cindex));
  while (s->stack.size) {
    int32_t top = at(&s->stack, s->stack.size - 2), entered = at(&s->stack, s->stack.size - 1);
    f = facts_of(s, top);
    if (entered < f->num_needed) {
      ((int32_t *)s->stack.data)[s->stack.size - 1]++;
      TRY(enter_up(s, at(&s->needed, f->first_needed + entered)));
      continue;
    }
    s->stack.size -= 2;
    if (f->status == UNKNOWN) TRY(push(s, top));
  }
  return DONE;
}

static int64_t stack_needed(search *s, int32_t cindex) {
  const cindex_facts *f = facts_of(s, cindex);
  for (int32_t i = 0; i < f->num_needed; i++) TRY(add(&s->stack, at(&s->needed, f->first_needed + i)));
  return DONE;
}

static int64_t count_needed_down(search *s, int32_t cindex) {
  s->stack.size = 0;
  TRY(stack_needed(s, cindex));
  while (s->stack.size) {
    int32_t unused = at(&s->stack, --s->stack.size);
    cindex_facts *f = facts_of(s, unused);
    if (--f->usable == 0 && f->status != NOT_COMPUTABLE) TRY(stack_needed(s, unused));
  }
  return DONE;
}

/* -- one cindex of the queue */

static int64_t ask(search *s, int32_t cindex) {
  answer found = {0};
  if (s->g->ask(cindex, &found) < 0) return STOPPED;
  for (int64_t before = s->all.size, i = before; i < found.num_cindexes; i++)
    TRY(add_cindex(s, found.new_nodes[i - before]));
  for (int64_t i = 0; i < found.num_asked; i++) {
    cindex_facts *f = facts_of(s, found.asked[i]);
    f->row = found.rows + i * found.width;
    f->width = (int32_t)found.width;
  }
  return facts_of(s, cindex)->width >= 0 ? DONE : STOPPED;
}

static int64_t add_user(search *s, int32_t needed, int32_t user) {
  use *new = added(&s->uses, 1);
  if (!new) return FAILED;
  *new = (use){user, -1};
  int32_t place = (int32_t)s->uses.size - 1;
  cindex_facts *f = facts_of(s, needed);
  if (f->last_user < 0) f->first_user = place;
  else ((use *)s->uses.data)[f->last_user].next = place;
  f->last_user = place;
  return DONE;
}

static int64_t explore(search *s, int32_t cindex) {
  if (facts_of(s, cindex)->width < 0) TRY(ask(s, cindex));
  cindex_facts *f = facts_of(s, cindex);
  int32_t first = (int32_t)s->needed.size;
  for (int32_t i = 0; i < f->width; i++) {
    if (f->row[i] < 0 || facts_of(s, f->row[i])->met == cindex) continue;
    facts_of(s, f->row[i])->met = cindex;
    TRY(add(&s->needed, f->row[i]));
  }
  int64_t end = s->needed.size;
  f->first_needed = first;
  f->num_needed = (int32_t)(end - first);
  f->explored = 1;
  for (int64_t i = first; i < end; i++)
    if (!facts_of(s, at(&s->needed, i))->known) TRY(discover(s, at(&s->needed, i)));
  for (int64_t i = first; i < end; i++) {
    TRY(add_user(s, at(&s->needed, i), cindex));
    TRY(count_up(s, at(&s->needed, i)));
  }
  return push(s, cindex);
}

/* Its status, given the status of its dependencies. */
static int64_t can(search *s, int32_t cindex, int with_unknown) {
  const cindex_facts *f = facts_of(s, cindex);
  uint8_t *available = room(&s->available, f->width); /* the buffer has no other user */
  if (!available) return FAILED;
  uint64_t bits = 0;
  for (int32_t i = 0; i < f->width; i++) {
    int status = f->row[i] < 0 ? NOT_COMPUTABLE : facts_of(s, f->row[i])->status;
    available[i] = status == COMPUTABLE || (with_unknown && status == UNKNOWN);
    if (available[i] && i < 64) bits |= (uint64_t)1 << i;
  }
  if (s->g->kinds[f->node] == BY_TABLE) return s->g->tables[f->node][bits];
  int64_t said = s->g->can(cindex, f->row, available, f->width);
  return said < 0 ? STOPPED : said;
}

static int64_t judge(search *s, int32_t cindex) {
  const cindex_facts *f = facts_of(s, cindex);
  int64_t kind = s->g->kinds[f->node];
  if (kind == INPUT)
    return cindex < s->g->num_cindexes && s->g->is_input[cindex] ? COMPUTABLE : NOT_COMPUTABLE;
  int computable = 0, unknown = 0, hopeless = 0;
  for (int32_t i = 0; i < f->num_needed; i++) {
    int status = facts_of(s, at(&s->needed, f->first_needed + i))->status;
    computable |= status == COMPUTABLE;
    unknown |= status == UNKNOWN;
    hopeless |= status == NOT_COMPUTABLE;
  }
  if (!unknown && !hopeless) return COMPUTABLE;
  if (kind == NEEDS_ALL) return hopeless ? NOT_COMPUTABLE : UNKNOWN;
  /* No component can do without any input. */
  if (kind == BY_ASKING && !computable && !hopeless) return UNKNOWN;
  int64_t now = can(s, cindex, 0);
  if (now != 0) return now < 0 ? now : COMPUTABLE;
  int64_t later = can(s, cindex, 1);
  return later < 0 ? later : later ? UNKNOWN : NOT_COMPUTABLE;
}

static int64_t decide(search *s, int32_t cindex) {
  int64_t status = judge(s, cindex);
  if (status <= UNKNOWN) return status;
  facts_of(s, cindex)->status = (uint8_t)status;
  const use *uses = s->uses.data;
  for (int32_t u = facts_of(s, cindex)->first_user; u >= 0; u = uses[u].next)
    if (facts_of(s, uses[u].user)->status == UNKNOWN) TRY(push(s, uses[u].user));
  return status == NOT_COMPUTABLE ? count_needed_down(s, cindex) : DONE;
}

/* Process the queue, last in first out. Cindexes queued during the hop wait for the next one. */
static int64_t hop(search *s) {
  for (int64_t i = s->queue.size - 1; i >= 0; i--) {
    int32_t cindex = at(&s->queue, i);
    cindex_facts *f = facts_of(s, cindex);
    f->queued = 0;
    if (f->usable == 0) continue;
    if (!f->explored) TRY(explore(s, cindex));
    else if (f->status == UNKNOWN) TRY(decide(s, cindex));
  }
  growing done = s->queue;
  s->queue = s->next;
  s->next = done;
  s->next.size = 0;
  return DONE;
}

static int64_t begin(search *s) {
  const graph *g = s->g;
  if (!room(&s->all, g->num_cindexes)) return FAILED;
  for (int32_t c = 0; c < g->num_cindexes; c++) {
    TRY(add_cindex(s, g->nodes[c]));
    cindex_facts *f = facts_of(s, c);
    int32_t node = g->nodes[c];
    f->status = g->is_input[c] ? COMPUTABLE : UNKNOWN;
    s->num_known += f->known = g->is_input[c];
    if (g->slots[c] < 0) continue;
    f->row = g->rows[node] + (int64_t)g->slots[c] * g->widths[node];
    f->width = (int32_t)g->widths[node];
  }
  for (int64_t i = 0; i < g->num_outputs; i++) {
    facts_of(s, g->outputs[i])->usable = 1;
    TRY(discover(s, g->outputs[i]));
  }
  s->queue = s->next;
  s->next = (growing){.each = sizeof(int32_t)};
  return DONE;
}

static int64_t run(search *s, int64_t *sizes) {
  TRY(begin(s));
  int64_t hops = 0;
  do {
    TRY(hop(s));
    sizes[hops++] = s->num_known;
  } while (s->queue.size && hops < s->g->max_hops);
  return hops;
}

/* Run hops until the queue is empty, or max_hops, and return their number; `sizes` (max_hops) gets the
   number of cindexes after each hop. FAILED or STOPPED after an error. */
int64_t nn_queue_search(const graph *g, int64_t *sizes) {
  search s = {.g = g, .all.each = sizeof(cindex_facts), .uses.each = sizeof(use), .available.each = 1};
  s.needed.each = s.queue.each = s.next.each = s.stack.each = sizeof(int32_t);
  int64_t hops = run(&s, sizes);
  growing *arrays[] = {&s.all, &s.uses, &s.needed, &s.queue, &s.next, &s.stack, &s.available};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]->data);
  return hops;
}
