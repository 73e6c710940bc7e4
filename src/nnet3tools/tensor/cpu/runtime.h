/* Runs a list of jobs on one thread or two. A job is cut into halves by its number of steps alone, and
   kernels give the same numbers however they are cut. */
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

/* The number of elements from which a second thread saves time: waking it takes some 10 us. */
#define NN_SHARED (1 << 17)

static pthread_mutex_t nn_lock;
static pthread_cond_t nn_wake, nn_done;
static job nn_task;
static i64 nn_first;
static atomic_int nn_busy;
static pid_t nn_owner; /* process that has the second thread: a forked process has none */

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

static void nn_look_for(int busy) {
  for (int i = 0; i < NN_LOOKS && nn_busy != busy; ++i) NN_PAUSE();
  if (nn_busy == busy) return;
  if (nn_sleeps > 0) {
    --nn_sleeps;
    return;
  }
  i64 before = nn_now();
  for (int i = 0; i < NN_YIELDS && nn_busy != busy; ++i) {
    sched_yield();
    const i64 now = nn_now();
    if (now - before > NN_TAKEN) {
      nn_sleeps = NN_SLEEPS;
      return;
    }
    before = now;
  }
}

static void *nn_help(void *unused) {
  (void)unused;
  for (;;) {
    nn_look_for(1);
    pthread_mutex_lock(&nn_lock);
    while (!nn_busy) pthread_cond_wait(&nn_wake, &nn_lock);
    const job task = nn_task;
    const i64 first = nn_first;
    pthread_mutex_unlock(&nn_lock);
    task.run(task.w, first, task.steps);
    pthread_mutex_lock(&nn_lock);
    nn_busy = 0;
    pthread_cond_signal(&nn_done);
    pthread_mutex_unlock(&nn_lock);
  }
  return 0;
}

/* Whether there is a second thread, started now if necessary. It blocks all signals. */
static int nn_has_helper(void) {
  if (nn_owner == getpid()) return 1;
  sigset_t all, before;
  pthread_t thread;
  pthread_mutex_init(&nn_lock, 0);
  pthread_cond_init(&nn_wake, 0);
  pthread_cond_init(&nn_done, 0);
  nn_busy = 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&thread, 0, nn_help, 0);
  pthread_sigmask(SIG_SETMASK, &before, 0);
  if (failed) return 0;
  pthread_detach(thread);
  nn_owner = getpid();
  return 1;
}

static void nn_share(const job *one) {
  pthread_mutex_lock(&nn_lock);
  nn_task = *one;
  nn_first = one->steps / 2;
  nn_busy = 1;
  pthread_cond_signal(&nn_wake);
  pthread_mutex_unlock(&nn_lock);
  one->run(one->w, 0, one->steps / 2);
  nn_look_for(0);
  pthread_mutex_lock(&nn_lock);
  while (nn_busy) pthread_cond_wait(&nn_done, &nn_lock);
  pthread_mutex_unlock(&nn_lock);
}

/* Run jobs in order. A job with negative work runs on one thread. Only one caller at a time may use two
   threads. */
void nn_run(const job *jobs, i64 count, i64 threads) {
  for (const job *one = jobs; one < jobs + count; ++one) {
    const int large = threads > 1 && one->work >= NN_SHARED && one->steps > 1;
    if (large && nn_has_helper()) nn_share(one);
    else one->run(one->w, 0, one->steps);
  }
}
