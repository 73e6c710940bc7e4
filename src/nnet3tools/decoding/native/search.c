/* Viterbi search with beams. It creates the same tokens, links and costs, in the same order, as
   decoder.py and pruning.py, which explain the algorithm. */

typedef struct {
  int64_t num_states, start;
  const float *finals;    /* (N) infinite for a state that is not final */
  const int64_t *offsets; /* (N + 1) the arcs of state s are offsets[s] to offsets[s + 1] - 1 */
  const int32_t *ilabels, *nextstates; /* (A) a label of 0 reads no frame */
  const float *weights;
  const int32_t *pdfs;          /* by label */
  const uint8_t *has_epsilon;   /* (N) whether a state has epsilon arcs */
} search_graph;

/* The struct `search_options` is declared by library.py, from the fields of SearchOptions. */

typedef struct { int32_t state; float cost; } token;
typedef struct { int64_t arc; int32_t source, target; float acoustic; } token_link;

/* The tokens after a frame, in order of creation, the links to them from the previous frame, the links
   between them, and the number that was added to acoustic costs. */
typedef struct {
  token *tokens;
  token_link *emitting, *epsilon;
  int64_t num_tokens, num_emitting, num_epsilon;
  float offset;
} frame;

typedef struct {
  const search_graph *graph;
  search_options options;
  int64_t hash_size; /* as in Kaldi, it never shrinks */
  growing frames;    /* frame */
  growing tokens, emitting, epsilon; /* token, link: of the frame under construction */
  growing chain;     /* int32_t: the next token in the order of the hash table, -1 at its end */
  int32_t first_of_chain, last_of_chain;
  int32_t *place;    /* (N) number of a state's token; valid only if that token has this state */
  growing buckets;   /* int32_t: the last token of each bucket, or -1 */
  growing waiting;   /* int32_t: tokens whose epsilon arcs must still be followed */
  growing costs;     /* float */
  growing extra, extra_before; /* float: when pruning */
  growing numbers;   /* int32_t: when pruning */
} search;

enum { EPSILON_LOOP = -2, LEAST_HASH_SIZE = 1000, MOST_VISITS = 100000 };

static frame *frame_of(const search *s, int64_t number) { return (frame *)s->frames.data + number; }
static frame *last_frame(const search *s) { return frame_of(s, s->frames.size - 1); }
static token *new_tokens(const search *s) { return s->tokens.data; }

/* -- tokens of the frame under construction */

static int32_t find_token(const search *s, int32_t state) {
  int32_t at = s->place[state];
  return at < s->tokens.size && new_tokens(s)[at].state == state ? at : -1;
}

/* A division takes as long as following an arc; small graphs need none. */
static int64_t bucket_of(const search *s, int32_t state) {
  return state < s->hash_size ? state : (uint32_t)state % (uint32_t)s->hash_size;
}

/* Insert a token where Kaldi's hash list has it: after its bucket's last token, or at the end. */
static inline int chain_token(search *s, int32_t number, int32_t state) {
  int32_t *next = added(&s->chain, 1), *buckets = s->buckets.data;
  if (!next) return FAILED;
  int32_t *last = buckets + bucket_of(s, state);
  int32_t after = *last >= 0 ? *last : s->last_of_chain;
  next = s->chain.data;
  next[number] = after >= 0 ? next[after] : -1;
  if (after >= 0) next[after] = number;
  else s->first_of_chain = number;
  if (after == s->last_of_chain) s->last_of_chain = number;
  *last = number;
  return YES;
}

static inline int32_t add_token(search *s, int32_t state, float cost) {
  token *made = s->tokens.size < INT32_MAX ? added(&s->tokens, 1) : NULL;
  if (!made) return FAILED;
  *made = (token){state, cost};
  int32_t number = (int32_t)(s->tokens.size - 1);
  s->place[state] = number;
  return chain_token(s, number, state) < 0 ? FAILED : number;
}

static inline int add_link(growing *links, int32_t source, int32_t target, int64_t arc, float acoustic) {
  token_link *made = added(links, 1);
  if (!made) return FAILED;
  *made = (token_link){arc, source, target, acoustic};
  return YES;
}

static int begin_frame(search *s) {
  s->tokens.size = s->emitting.size = s->epsilon.size = s->chain.size = 0;
  s->first_of_chain = s->last_of_chain = -1;
  int64_t more = s->hash_size - s->buckets.size;
  if (more > 0) {
    int32_t *fresh = added(&s->buckets, more);
    if (!fresh) return FAILED;
    memset(fresh, 0xff, (size_t)more * sizeof *fresh);
  }
  return YES;
}

static int copied(const growing *from, void **to, int64_t *size) {
  *size = from->size;
  *to = malloc((size_t)(from->size + 1) * from->each);
  if (*to && from->size) memcpy(*to, from->data, (size_t)from->size * from->each);
  return *to ? YES : FAILED;
}

static int end_frame(search *s, float offset) {
  const token *tokens = s->tokens.data;
  for (int64_t i = 0; i < s->tokens.size; i++)
    ((int32_t *)s->buckets.data)[bucket_of(s, tokens[i].state)] = -1;
  frame *made = added(&s->frames, 1);
  if (!made) return FAILED;
  memset(made, 0, sizeof *made);
  made->offset = offset;
  if (copied(&s->tokens, (void **)&made->tokens, &made->num_tokens) < 0 ||
      copied(&s->emitting, (void **)&made->emitting, &made->num_emitting) < 0 ||
      copied(&s->epsilon, (void **)&made->epsilon, &made->num_epsilon) < 0)
    return FAILED;
  return YES;
}

/* -- epsilon arcs */

static int follow_epsilon(search *s, int32_t number, float limit) {
  const search_graph *graph = s->graph;
  token from = new_tokens(s)[number];
  if (!(from.cost < limit)) return YES;
  for (int64_t arc = graph->offsets[from.state]; arc < graph->offsets[from.state + 1]; arc++) {
    float total = from.cost + graph->weights[arc];
    if (graph->ilabels[arc] || !(total < limit)) continue;
    int32_t state = graph->nextstates[arc], target = find_token(s, state);
    if (target >= 0) {
      if (!(total < new_tokens(s)[target].cost)) continue;
      new_tokens(s)[target].cost = total;
    } else if ((target = add_token(s, state, total)) < 0) {
      return FAILED;
    }
    if (!graph->has_epsilon[state]) continue;
    int32_t *waiting = added(&s->waiting, 1);
    if (!waiting) return FAILED;
    *waiting = target;
  }
  return YES;
}

/* Add the links by epsilon arcs, computed from the tokens' final costs. */
static int link_epsilon(search *s, float limit) {
  const search_graph *graph = s->graph;
  for (int64_t i = 0; i < s->tokens.size; i++) {
    token from = new_tokens(s)[i];
    if (!graph->has_epsilon[from.state] || !(from.cost < limit)) continue;
    for (int64_t arc = graph->offsets[from.state]; arc < graph->offsets[from.state + 1]; arc++)
      if (!graph->ilabels[arc] && from.cost + graph->weights[arc] < limit &&
          add_link(&s->epsilon, (int32_t)i, find_token(s, graph->nextstates[arc]), arc, 0.0f) < 0)
        return FAILED;
  }
  return YES;
}

/* Add the tokens that epsilon arcs reach below the limit; the latest token is followed first. */
static int close_frame(search *s, float limit) {
  s->waiting.size = 0;
  for (int32_t at = s->first_of_chain; at >= 0; at = ((int32_t *)s->chain.data)[at]) {
    if (!s->graph->has_epsilon[new_tokens(s)[at].state]) continue;
    int32_t *waiting = added(&s->waiting, 1);
    if (!waiting) return FAILED;
    *waiting = at;
  }
  for (int64_t visits = 1; s->waiting.size; visits++) {
    if (visits > MOST_VISITS + 1000 * s->tokens.size) return EPSILON_LOOP;
    if (follow_epsilon(s, ((int32_t *)s->waiting.data)[--s->waiting.size], limit) < 0) return FAILED;
  }
  return link_epsilon(s, limit);
}

/* -- arcs that read a frame */

/* The k-th smallest cost (quickselect); reorders the costs. */
static float kth_cost(float *costs, int64_t size, int64_t k) {
  for (int64_t low = 0, high = size - 1; low < high;) {
    float middle = costs[low + (high - low) / 2];
    int64_t i = low, j = high;
    while (i <= j) {
      while (costs[i] < middle) i++;
      while (costs[j] > middle) j--;
      if (i > j) break;
      float other = costs[i];
      costs[i++] = costs[j];
      costs[j--] = other;
    }
    if (k <= j) high = j;
    else if (k >= i) low = i;
    else break;
  }
  return costs[k];
}

/* The cost limit for tokens of this frame; `beam` gets the beam for the next frame. */
static float find_cutoff(search *s, const frame *f, float best, float *beam) {
  const search_options *o = &s->options;
  float *costs = s->costs.data, within = best + o->beam, cutoff = within;
  int64_t num_below = 0, num_within = 0;
  for (int64_t i = 0; i < f->num_tokens; i++) {
    costs[i] = f->tokens[i].cost;
    num_below += costs[i] < within;
    num_within += costs[i] <= within;
  }
  if (num_below > o->max_active)
    cutoff = kth_cost(costs, f->num_tokens, o->max_active);
  else if (o->min_active > 0 && num_within <= o->min_active)
    cutoff = f->num_tokens > o->min_active ? kth_cost(costs, f->num_tokens, o->min_active) : INFINITY;
  *beam = cutoff == within ? o->beam : cutoff - best + o->beam_delta;
  return cutoff;
}

/* Copy the chain, which has the order of the last frame's tokens, to `waiting`. */
static int copy_chain(search *s) {
  s->waiting.size = 0;
  int32_t *order = added(&s->waiting, s->chain.size);
  if (!order && s->chain.size) return FAILED;
  for (int32_t at = s->first_of_chain; at >= 0; at = ((int32_t *)s->chain.data)[at]) *order++ = at;
  return YES;
}

/* The cost of the cheapest continuation from a state by one arc, summed in Kaldi's order. */
static float first_limit(const search *s, int32_t state, float best, float beam, const float *loglikes) {
  const search_graph *graph = s->graph;
  float limit = INFINITY;
  for (int64_t arc = graph->offsets[state]; arc < graph->offsets[state + 1]; arc++) {
    if (!graph->ilabels[arc]) continue;
    float cost = graph->weights[arc] + -best - loglikes[graph->pdfs[graph->ilabels[arc]]] + best;
    if (cost < limit) limit = cost;
  }
  return limit + beam;
}

/* Follow a token's arcs, except those that are too expensive compared with the best path so far. */
static int follow_emitting(search *s, token from, int32_t number, float best, float beam, const float *loglikes, float *limit) {
  const search_graph graph = *s->graph; /* a copy stays in registers: no store can change it */
  for (int64_t arc = graph.offsets[from.state], end = graph.offsets[from.state + 1]; arc < end; arc++) {
    if (!graph.ilabels[arc]) continue;
    float acoustic = -best - loglikes[graph.pdfs[graph.ilabels[arc]]];
    float total = from.cost + acoustic + graph.weights[arc];
    if (!(total < *limit)) continue;
    if (total + beam < *limit) *limit = total + beam;
    int32_t state = graph.nextstates[arc], target = find_token(s, state);
    if (target < 0 && (target = add_token(s, state, total)) < 0) return FAILED;
    if (total < new_tokens(s)[target].cost) new_tokens(s)[target].cost = total;
    if (add_link(&s->emitting, number, target, arc, acoustic) < 0) return FAILED;
  }
  return YES;
}

static int next_frame(search *s, const float *loglikes) {
  const frame *f = last_frame(s);
  if (!f->num_tokens) return begin_frame(s) < 0 ? FAILED : end_frame(s, f->offset);
  s->costs.size = 0;
  if (copy_chain(s) < 0 || !room(&s->costs, f->num_tokens)) return FAILED;
  const int32_t *order = s->waiting.data;
  token best = f->tokens[order[0]];
  for (int64_t i = 1; i < f->num_tokens; i++)
    if (f->tokens[order[i]].cost < best.cost) best = f->tokens[order[i]];
  float beam, cutoff = find_cutoff(s, f, best.cost, &beam);
  float wanted = (float)f->num_tokens * s->options.hash_ratio;
  if ((int64_t)wanted > s->hash_size) s->hash_size = (int64_t)wanted;
  float limit = first_limit(s, best.state, best.cost, beam, loglikes);
  if (begin_frame(s) < 0) return FAILED;
  for (int64_t i = 0; i < f->num_tokens; i++) {
    token from = f->tokens[order[i]];
    if (from.cost <= cutoff && follow_emitting(s, from, order[i], best.cost, beam, loglikes, &limit) < 0)
      return FAILED;
  }
  int result = close_frame(s, limit);
  return result < 0 ? result : end_frame(s, -best.cost);
}

/* -- pruning of tokens and links that are on no path within a beam of the best path */

static float detour(const token_link *w, const token *sources, const token *targets, const float *weights) {
  return sources[w->source].cost + w->acoustic + weights[w->arc] - targets[w->target].cost;
}

/* The extra cost of a link, given the extra cost of its target: the cost of the best path through it
   minus that of the best path. It is infinite outside the beam. */
static float link_extra(const token_link *w, float after, float beam, const token *sources, const token *targets, const float *weights) {
  if (!(after <= beam)) return INFINITY;
  float extra = after + detour(w, sources, targets, weights);
  return extra < 0.0f ? 0.0f : extra <= beam ? extra : INFINITY;
}

/* Update the extra costs of a frame's tokens by its epsilon links. No link makes a path cheaper than the
   tokens' costs, so the result does not depend on the order. Links are sorted by source: one pass from
   the last link to the first suffices, unless links lead back to earlier tokens. */
static void lower_by_epsilon(const search *s, const frame *f, float *extra) {
  int changed = YES, leads_back = NO;
  for (int64_t pass = 0; changed && (!pass || leads_back); pass++) {
    changed = NO;
    for (int64_t i = 0; i < f->num_epsilon; i++) {
      const token_link *w = f->epsilon + (pass % 2 ? i : f->num_epsilon - 1 - i);
      float found = link_extra(w, extra[w->target], s->options.lattice_beam, f->tokens, f->tokens, s->graph->weights);
      leads_back |= w->target <= w->source;
      if (found < extra[w->source]) {
        extra[w->source] = found;
        changed = YES;
      }
    }
  }
}

/* Keep the links within the beam, and lower the extra costs of the previous frame by them. */
static int keep_links(const search *s, frame *f, const frame *before, const float *extra, float *extra_before) {
  const float *weights = s->graph->weights, beam = s->options.lattice_beam;
  int64_t kept = 0;
  for (int64_t i = 0; i < f->num_emitting; i++) {
    token_link *w = f->emitting + i;
    float found = link_extra(w, extra[w->target], beam, before->tokens, f->tokens, weights);
    if (found == INFINITY) continue;
    if (found < extra_before[w->source]) extra_before[w->source] = found;
    f->emitting[kept++] = *w;
  }
  int changed = kept < f->num_emitting;
  f->num_emitting = kept;
  kept = 0;
  for (int64_t i = 0; i < f->num_epsilon; i++) {
    token_link *w = f->epsilon + i;
    if (link_extra(w, extra[w->target], beam, f->tokens, f->tokens, weights) < INFINITY) f->epsilon[kept++] = *w;
  }
  changed |= kept < f->num_epsilon;
  f->num_epsilon = kept;
  return changed;
}

/* Keep the tokens within the beam, and renumber the links from and to the frame. */
static int keep_tokens(const search *s, frame *f, frame *later, const float *extra, int32_t *numbers) {
  int32_t kept = 0;
  for (int64_t i = 0; i < f->num_tokens; i++) {
    numbers[i] = kept;
    if (extra[i] <= s->options.lattice_beam) f->tokens[kept++] = f->tokens[i];
  }
  if (kept == f->num_tokens) return NO;
  f->num_tokens = kept;
  for (int64_t i = 0; i < f->num_emitting; i++) f->emitting[i].target = numbers[f->emitting[i].target];
  for (int64_t i = 0; i < f->num_epsilon; i++) {
    f->epsilon[i].source = numbers[f->epsilon[i].source];
    f->epsilon[i].target = numbers[f->epsilon[i].target];
  }
  if (later)
    for (int64_t i = 0; i < later->num_emitting; i++)
      later->emitting[i].source = numbers[later->emitting[i].source];
  return YES;
}

static void shrink(void **data, int64_t size, size_t each) {
  void *smaller = realloc(*data, (size_t)(size + 1) * each);
  if (smaller) *data = smaller;
}

/* Prune frames from the last, whose tokens' extra costs are given, to the first. Frames before
   `first_new` have been pruned: it stops where nothing is left to do. */
static int prune_frames(search *s, int64_t first_new) {
  for (int64_t number = s->frames.size - 1; number >= 0; number--) {
    frame *f = frame_of(s, number), *before = number ? f - 1 : NULL;
    int64_t num_before = before ? before->num_tokens : 0;
    s->extra_before.size = s->numbers.size = 0;
    float *extra = s->extra.data, *extra_before = room(&s->extra_before, num_before + 1);
    int32_t *numbers = room(&s->numbers, f->num_tokens + 1);
    if (!extra_before || !numbers) return FAILED;
    for (int64_t i = 0; i < num_before; i++) extra_before[i] = INFINITY;
    lower_by_epsilon(s, f, extra);
    int changed = keep_links(s, f, before, extra, extra_before);
    changed |= keep_tokens(s, f, number + 1 < s->frames.size ? f + 1 : NULL, extra, numbers);
    if (!changed && number < first_new) return YES;
    shrink((void **)&f->tokens, f->num_tokens, sizeof(token));
    shrink((void **)&f->emitting, f->num_emitting, sizeof(token_link));
    shrink((void **)&f->epsilon, f->num_epsilon, sizeof(token_link));
    growing swapped = s->extra;
    s->extra = s->extra_before;
    s->extra_before = swapped;
  }
  return YES;
}

static float *extra_of_last(search *s) {
  s->extra.size = 0;
  float *extra = room(&s->extra, last_frame(s)->num_tokens + 1);
  for (int64_t i = 0; extra && i < last_frame(s)->num_tokens; i++) extra[i] = 0.0f;
  return extra;
}

/* -- functions that Python calls */

static void forget_frames(search *s) {
  for (int64_t i = 0; i < s->frames.size; i++) {
    free(frame_of(s, i)->tokens);
    free(frame_of(s, i)->emitting);
    free(frame_of(s, i)->epsilon);
  }
  s->frames.size = 0;
}

void nn_search_free(search *s) {
  if (!s) return;
  forget_frames(s);
  void *all[] = {s->frames.data, s->tokens.data, s->emitting.data, s->epsilon.data, s->chain.data,
                 s->place, s->buckets.data, s->waiting.data, s->costs.data, s->extra.data,
                 s->extra_before.data, s->numbers.data, s};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* The graph must live as long as the search. */
search *nn_search_new(const search_graph *graph, const search_options *options) {
  search *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->graph = graph;
  s->options = *options;
  s->hash_size = LEAST_HASH_SIZE;
  s->frames.each = sizeof(frame);
  s->tokens.each = sizeof(token);
  s->emitting.each = s->epsilon.each = sizeof(token_link);
  s->chain.each = s->buckets.each = s->waiting.each = s->numbers.each = sizeof(int32_t);
  s->costs.each = s->extra.each = s->extra_before.each = sizeof(float);
  s->place = calloc((size_t)graph->num_states + 1, sizeof *s->place);
  if (s->place) return s;
  nn_search_free(s);
  return NULL;
}

int nn_search_start(search *s) {
  forget_frames(s);
  if (s->buckets.size) memset(s->buckets.data, 0xff, (size_t)s->buckets.size * sizeof(int32_t));
  if (begin_frame(s) < 0 || add_token(s, (int32_t)s->graph->start, 0.0f) < 0) return FAILED;
  int result = close_frame(s, s->options.beam);
  return result < 0 ? result : end_frame(s, 0.0f);
}

/* Decode `num_frames` further frames, given rows of log-likelihoods. */
int nn_search_advance(search *s, const float *loglikes, int64_t num_frames, int64_t num_columns) {
  for (int64_t i = 0; i < num_frames; i++, loglikes += num_columns) {
    int64_t done = s->frames.size - 1;
    if (done && done % s->options.prune_interval == 0)
      if (!extra_of_last(s) || prune_frames(s, done - s->options.prune_interval) < 0) return FAILED;
    int result = next_frame(s, loglikes);
    if (result < 0) return result;
  }
  return YES;
}

static int has_final(const search *s) {
  const frame *f = last_frame(s);
  for (int64_t i = 0; i < f->num_tokens; i++)
    if (s->graph->finals[f->tokens[i].state] != INFINITY) return YES;
  return NO;
}

/* Prune all frames. Paths end in final states if one has been reached. */
int nn_search_finish(search *s) {
  const frame *f = last_frame(s);
  float *extra = extra_of_last(s), best = INFINITY;
  if (!extra) return FAILED;
  int with_finals = has_final(s);
  for (int64_t i = 0; i < f->num_tokens; i++) {
    extra[i] = f->tokens[i].cost + (with_finals ? s->graph->finals[f->tokens[i].state] : 0.0f);
    if (extra[i] < best) best = extra[i];
  }
  for (int64_t i = 0; i < f->num_tokens; i++) extra[i] -= best;
  return prune_frames(s, 0);
}

/* Numbers of frames, tokens, links of both kinds and last tokens; whether a final state is reached. */
void nn_search_sizes(const search *s, int64_t *sizes) {
  memset(sizes, 0, 6 * sizeof *sizes);
  for (int64_t i = 0; i < s->frames.size; i++) {
    const frame *f = frame_of(s, i);
    sizes[0]++;
    sizes[1] += f->num_tokens;
    sizes[2] += f->num_emitting;
    sizes[3] += f->num_epsilon;
  }
  sizes[4] = s->frames.size ? last_frame(s)->num_tokens : 0;
  sizes[5] = s->frames.size && has_final(s);
}

typedef struct { int64_t *sources, *targets, *arcs; float *acoustic; } link_arrays;

static void export_links(const token_link *links, int64_t count, int64_t sources, int64_t targets, float offset, link_arrays *to) {
  for (int64_t i = 0; i < count; i++) {
    *to->sources++ = links[i].source + sources;
    *to->targets++ = links[i].target + targets;
    *to->arcs++ = links[i].arc;
    *to->acoustic++ = links[i].acoustic - offset;
  }
}

/* Fill arrays of these sizes; tokens are numbered over all frames. */
void nn_search_export(const search *s, int64_t *num_tokens, int32_t *last_states, link_arrays *emitting, link_arrays *epsilon) {
  int64_t first = 0, before = 0;
  for (int64_t i = 0; i < s->frames.size; i++) {
    const frame *f = frame_of(s, i);
    num_tokens[i] = f->num_tokens;
    export_links(f->emitting, f->num_emitting, before, first, f->offset, emitting);
    export_links(f->epsilon, f->num_epsilon, first, first, 0.0f, epsilon);
    before = first;
    first += f->num_tokens;
  }
  for (int64_t i = 0; i < last_frame(s)->num_tokens; i++) last_states[i] = last_frame(s)->tokens[i].state;
}

/* -- the best path so far */

/* The cheapest link among `count` that lead to a token, with its cost in *cost; NULL if none is cheaper. */
static const token_link *cheapest(const token_link *links, int64_t count, int32_t target, const token *sources,
                                  const float *weights, float *cost) {
  const token_link *found = NULL;
  for (int64_t i = 0; i < count; i++) {
    if (links[i].target != target) continue;
    float total = sources[links[i].source].cost + links[i].acoustic + weights[links[i].arc];
    if (total >= *cost) continue;
    *cost = total;
    found = links + i;
  }
  return found;
}

/* The arcs of the best path to a token of the last frame, the latest first; final costs do not count.
   Returns their number, of which the first `room` are stored. `relative` gets the cost of the best path
   to a final state minus that of the best path to any state. */
int64_t nn_search_trace(const search *s, int64_t *arcs, int64_t room, float *relative) {
  const frame *f = last_frame(s);
  float best = INFINITY, best_final = INFINITY;
  int32_t at = -1;
  for (int32_t i = 0; i < f->num_tokens; i++) {
    float with_final = f->tokens[i].cost + s->graph->finals[f->tokens[i].state];
    if (with_final < best_final) best_final = with_final;
    if (f->tokens[i].cost < best) best = f->tokens[at = i].cost;
  }
  *relative = best_final < INFINITY ? best_final - best : INFINITY;
  int64_t count = 0;
  for (int64_t number = s->frames.size - 1, steps = 0; at >= 0;) {
    f = frame_of(s, number);
    float cost = INFINITY;
    const token_link *step = number ? cheapest(f->emitting, f->num_emitting, at, f[-1].tokens, s->graph->weights, &cost) : NULL;
    const token_link *epsilon = number || at ? cheapest(f->epsilon, f->num_epsilon, at, f->tokens, s->graph->weights, &cost) : NULL;
    if (epsilon) step = epsilon;
    if (!step) break;
    if (epsilon && ++steps > f->num_tokens) return EPSILON_LOOP;
    if (!epsilon) number--, steps = 0;
    if (count < room) arcs[count] = step->arc;
    count++;
    at = step->source;
  }
  return count;
}
