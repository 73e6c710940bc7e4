// Runs the grids of kernels on the host, block by block, in any order of blocks and threads.
//
// Threads that wait for each other are fibers. A warp runs until all of its threads stand at a
// block's barrier or have left, exchanging values among themselves meanwhile; then the next warp
// runs. So nothing but a barrier makes a warp see what another one does.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct Index { unsigned x, y, z; };
extern "C" {
Index threadIdx, blockIdx, blockDim, gridDim;
typedef void (*Body)(void**);
void* nn_dynamic_shared;
}

namespace {
const int kMaxThreads = 1024, kWarp = 32;
const size_t kStack = 64 * 1024;
const unsigned char kNonsense = 0x7f;
enum State { kReady, kAtBarrier, kAtWarp, kFinished };
char* stacks;
ucontext_t scheduler, start[kMaxThreads];
jmp_buf resume[kMaxThreads], back;
sigjmp_buf out;
bool started[kMaxThreads];
State state[kMaxThreads];
double lanes[kMaxThreads];
int order[kMaxThreads];
int current, num_threads, order_kind;
unsigned long long random_state = 88172645463325252ull;
char problem[300];
Body body;
void** arguments;

unsigned next_random() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (unsigned)(random_state >> 11);
}

// 0: forwards, 1: backwards, 2: by chance
void fill_order(int* places, int count) {
  for (int i = 0; i < count; ++i) places[i] = order_kind == 1 ? count - 1 - i : i;
  if (order_kind != 2) return;
  for (int i = count - 1; i > 0; --i) {
    const int j = next_random() % (i + 1), t = places[i];
    places[i] = places[j];
    places[j] = t;
  }
}

void fail(const char* what) {
  snprintf(problem, sizeof problem, "%s (block %u %u %u, thread %d of %d)", what, blockIdx.x,
           blockIdx.y, blockIdx.z, current, num_threads);
  siglongjmp(out, 1);
}

void fault(int, siginfo_t* info, void*) {
  char text[80];
  snprintf(text, sizeof text, "an illegal address, %p", info->si_addr);
  fail(text);
}

void set_thread(int i) {
  current = i;
  threadIdx.x = i % blockDim.x;
  threadIdx.y = i / blockDim.x % blockDim.y;
  threadIdx.z = i / blockDim.x / blockDim.y;
}

void fiber() {
  body(arguments);
  state[current] = kFinished;
  _longjmp(back, 1);
}

void run_thread(int i) {
  set_thread(i);
  state[i] = kReady;
  if (_setjmp(back) != 0) return;
  if (started[i]) _longjmp(resume[i], 1);
  started[i] = true;
  getcontext(&start[i]);
  start[i].uc_stack.ss_sp = stacks + i * kStack;
  start[i].uc_stack.ss_size = kStack;
  start[i].uc_link = &scheduler;
  makecontext(&start[i], fiber, 0);
  setcontext(&start[i]);
}

// Until no thread of the warp can go on before the block's barrier.
void run_warp(int first) {
  const int size = num_threads - first < kWarp ? num_threads - first : kWarp;
  for (bool again = true; again;) {
    int places[kWarp], waiting = 0, exchanging = 0;
    fill_order(places, size);
    for (int k = 0; k < size; ++k)
      if (state[first + places[k]] != kFinished) run_thread(first + places[k]);
    for (int i = first; i < first + size; ++i) {
      waiting += state[i] == kAtBarrier;
      exchanging += state[i] == kAtWarp;
    }
    if (exchanging && (waiting || exchanging < size || size < kWarp))
      fail("a warp exchanges values without some of its threads");
    if (waiting && waiting < size) fail("some threads of a warp have left before a barrier");
    again = exchanging > 0;
  }
}

void run_block(void (*poison)(), size_t shared) {
  memset(started, 0, sizeof started);
  memset(state, 0, sizeof state);
  if (poison) poison();
  memset(nn_dynamic_shared, kNonsense, shared);
  const int num_warps = (num_threads + kWarp - 1) / kWarp;
  for (bool busy = true; busy;) {
    int warps[kMaxThreads / kWarp];
    busy = false;
    fill_order(warps, num_warps);
    for (int k = 0; k < num_warps; ++k)
      if (state[warps[k] * kWarp] != kFinished) {
        run_warp(warps[k] * kWarp);
        busy = true;
      }
    bool waiting = false, gone = false;
    for (int i = 0; i < num_threads; i += kWarp) {
      waiting = waiting || state[i] == kAtBarrier;
      gone = gone || state[i] == kFinished;
    }
    if (waiting && gone) fail("some warps have left before a barrier");
  }
}

void stop(State why) {
  state[current] = why;
  if (_setjmp(resume[current]) == 0) _longjmp(back, 1);
}

void run_grid(Body kernel, void** args, void (*poison)(), size_t shared, bool fibers) {
  const unsigned long long total = 1ull * gridDim.x * gridDim.y * gridDim.z;
  const unsigned long long shift = order_kind == 2 ? next_random() % total : 0;
  for (unsigned long long k = 0; k < total; ++k) {
    unsigned long long b = (k + shift) % total;
    if (order_kind == 1 || shift & 1) b = total - 1 - b;
    blockIdx = {(unsigned)(b % gridDim.x), (unsigned)(b / gridDim.x % gridDim.y),
                (unsigned)(b / gridDim.x / gridDim.y)};
    if (fibers) {
      run_block(poison, shared);
      continue;
    }
    fill_order(order, num_threads);
    for (int i = 0; i < num_threads; ++i) {
      set_thread(order[i]);
      kernel(args);
    }
  }
}
}  // namespace

extern "C" void nn_barrier() { stop(kAtBarrier); }
extern "C" void nn_warp_barrier() { stop(kAtWarp); }

// The value of another lane of the same warp, after all lanes have given theirs.
extern "C" double nn_exchange(double mine, int lane) {
  const int me = current, base = me / kWarp * kWarp;
  lanes[me] = mine;
  nn_warp_barrier();
  const bool there = lane >= 0 && lane < kWarp && base + lane < num_threads;
  const double value = there ? lanes[base + lane] : mine;
  nn_warp_barrier();
  return value;
}

extern "C" int nn_lane() { return current % kWarp; }

// What went wrong, or null.
extern "C" const char* nn_launch(Body kernel, void** args, const unsigned* grid,
                                 const unsigned* block, int fibers, int order_of_threads,
                                 void (*poison)(), size_t shared) {
  if (!stacks) stacks = static_cast<char*>(malloc(kMaxThreads * kStack));
  if (!nn_dynamic_shared) nn_dynamic_shared = aligned_alloc(256, 256 * 1024);
  body = kernel;
  arguments = args;
  order_kind = order_of_threads;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  num_threads = block[0] * block[1] * block[2];
  struct sigaction ours, before, before_bus;
  memset(&ours, 0, sizeof ours);
  ours.sa_sigaction = fault;
  ours.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &ours, &before);
  sigaction(SIGBUS, &ours, &before_bus);
  volatile bool failed = true;
  if (sigsetjmp(out, 1) == 0) {
    run_grid(kernel, args, poison, shared, fibers);
    failed = false;
  }
  sigaction(SIGSEGV, &before, nullptr);
  sigaction(SIGBUS, &before_bus, nullptr);
  return failed ? problem : nullptr;
}
