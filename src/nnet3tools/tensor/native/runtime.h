/* What runs a list of jobs. */
typedef struct { kernel *run; const word *w; i64 steps; i64 work; } job;

void nn_run(const job *jobs, i64 count) {
  for (i64 k = 0; k < count; ++k) jobs[k].run(jobs[k].w, 0, jobs[k].steps);
}
