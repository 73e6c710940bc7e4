/* Runs a list of jobs on one thread or several. A job is cut by its steps into parts of about equal
   size, and kernels give the same numbers however they are cut. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#define NN_PAUSE() __builtin_ia32_pause()
#else
#define NN_PAUSE() ((void)0)
#endif

typedef struct { kernel *run; const word *w; i64 steps; i64 work; } job;

/* The least number of elements of a part: waking a thread takes some 10 us. */
#define NN_PART (1 << 16)

/* A thread that does the steps [first, end) of a job while `busy` is set. */
typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  atomic_int busy;
  job task;
  i64 first, end;
} helper;

#define NN_MOST_THREADS 64
static helper nn_helpers[NN_MOST_THREADS - 1];
static i64 nn_started;
static pid_t nn_owner; /* process that has the helpers: a forked process has none */

/* A waiting thread looks NN_LOOKS times (some 30 us), then yields NN_YIELDS times (0.5 ms and more),
   then sleeps. Waking takes as long as many jobs. Without yields there were 8,000 sleeps in 15
   minibatches of benchmarks/' tdnnf, and lstm took 1.05 times as long. */
#define NN_LOOKS 800
#define NN_YIELDS 2000
/* A yield of more than NN_TAKEN means that another process wants the processor. It then keeps the
   processor for 3 ms and more, whereas a thread that sleeps gets it back when it is woken. So the next
   NN_SLEEPS waits are asleep. With two more processes on two processors lstm took 16 to 32 s without
   this, and 4 s with it. */
#define NN_TAKEN 1000000 /* ns; other virtual machines sometimes take 50 us */
#define NN_SLEEPS 500

static atomic_int nn_sleeps; /* the number of coming waits that sleep at once */

static i64 nn_now(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (i64)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void nn_look_for(const atomic_int *found, int busy) {
  for (int i = 0; i < NN_LOOKS && *found != busy; ++i) NN_PAUSE();
  if (*found == busy) return;
  if (nn_sleeps > 0) {
    --nn_sleeps;
    return;
  }
  i64 before = nn_now();
  for (int i = 0; i < NN_YIELDS && *found != busy; ++i) {
    sched_yield();
    const i64 now = nn_now();
    if (now - before > NN_TAKEN) {
      nn_sleeps = NN_SLEEPS;
      return;
    }
    before = now;
  }
}

static void *nn_help(void *argument) {
  helper *self = argument;
  for (;;) {
    nn_look_for(&self->busy, 1);
    pthread_mutex_lock(&self->lock);
    while (!self->busy) pthread_cond_wait(&self->wake, &self->lock);
    pthread_mutex_unlock(&self->lock);
    self->task.run(self->task.w, self->first, self->end);
    pthread_mutex_lock(&self->lock);
    self->busy = 0;
    pthread_cond_signal(&self->done);
    pthread_mutex_unlock(&self->lock);
  }
  return 0;
}

/* The number of helpers, at most `wanted`; those that are missing are started. They block all signals. */
static i64 nn_helpers_of(i64 wanted) {
  if (nn_owner != getpid()) {
    nn_owner = getpid();
    nn_started = 0;
  }
  sigset_t all, before;
  sigfillset(&all);
  for (; nn_started < wanted; ++nn_started) {
    helper *one = nn_helpers + nn_started;
    pthread_t thread;
    pthread_mutex_init(&one->lock, 0);
    pthread_cond_init(&one->wake, 0);
    pthread_cond_init(&one->done, 0);
    one->busy = 0;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&thread, 0, nn_help, one);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    if (failed) return nn_started;
    pthread_detach(thread);
  }
  return wanted;
}

/* The first step of part `i`. */
static i64 nn_first(const job *one, i64 i, i64 parts) { return (one->steps * i + parts / 2) / parts; }

static void nn_share(const job *one, i64 parts) {
  for (i64 i = 1; i < parts; ++i) {
    helper *other = nn_helpers + i - 1;
    pthread_mutex_lock(&other->lock);
    other->task = *one;
    other->first = nn_first(one, i, parts);
    other->end = nn_first(one, i + 1, parts);
    other->busy = 1;
    pthread_cond_signal(&other->wake);
    pthread_mutex_unlock(&other->lock);
  }
  one->run(one->w, 0, nn_first(one, 1, parts));
  for (i64 i = 1; i < parts; ++i) {
    helper *other = nn_helpers + i - 1;
    nn_look_for(&other->busy, 0);
    pthread_mutex_lock(&other->lock);
    while (other->busy) pthread_cond_wait(&other->done, &other->lock);
    pthread_mutex_unlock(&other->lock);
  }
}

/* Run jobs in order. A job of little work runs on one thread. Only one caller at a time may use more
   than one. */
void nn_run(const job *jobs, i64 count, i64 threads) {
  for (const job *one = jobs; one < jobs + count; ++one) {
    i64 parts = NN_LEAST(NN_LEAST(threads, one->steps), one->work / NN_PART);
    if (parts > 1) parts = 1 + nn_helpers_of(parts - 1);
    if (parts > 1) nn_share(one, parts);
    else one->run(one->w, 0, one->steps);
  }
}
