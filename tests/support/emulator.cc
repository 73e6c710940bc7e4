// Runs the threads of a block as fibers, so that __syncthreads and the shuffles mean what they do.
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct Index { unsigned x, y, z; };
extern "C" {
Index threadIdx, blockIdx, blockDim, gridDim;
typedef void (*Body)(void**);
}

namespace {
const int kMaxThreads = 1024;
const size_t kStack = 64 * 1024;
char* stacks;
ucontext_t scheduler, start[kMaxThreads];
jmp_buf resume[kMaxThreads], back;
bool started[kMaxThreads], finished[kMaxThreads];
double lanes[kMaxThreads];
int current, num_threads;
Body body;
void** arguments;

void set_thread(int i) {
  current = i;
  threadIdx.x = i % blockDim.x;
  threadIdx.y = i / blockDim.x % blockDim.y;
  threadIdx.z = i / blockDim.x / blockDim.y;
}

void fiber() {
  body(arguments);
  finished[current] = true;
  _longjmp(back, 1);
}

void run_block() {
  memset(started, 0, sizeof started);
  memset(finished, 0, sizeof finished);
  for (bool busy = true; busy;) {
    busy = false;
    for (volatile int i = 0; i < num_threads; ++i) {
      if (finished[i]) continue;
      busy = true;
      set_thread(i);
      if (_setjmp(back) == 0) {
        if (started[i]) _longjmp(resume[i], 1);
        started[i] = true;
        getcontext(&start[i]);
        start[i].uc_stack.ss_sp = stacks + i * kStack;
        start[i].uc_stack.ss_size = kStack;
        start[i].uc_link = &scheduler;
        makecontext(&start[i], fiber, 0);
        setcontext(&start[i]);
      }
    }
  }
}
}  // namespace

extern "C" void nn_barrier() {
  if (_setjmp(resume[current]) == 0) _longjmp(back, 1);
}

// The value of another lane of the same warp, after all lanes have given theirs.
extern "C" double nn_exchange(double mine, int lane) {
  const int me = current, base = me / 32 * 32;
  lanes[me] = mine;
  nn_barrier();
  const bool there = lane >= 0 && lane < 32 && base + lane < num_threads;
  const double value = there ? lanes[base + lane] : mine;
  nn_barrier();
  return value;
}

extern "C" int nn_lane() { return current % 32; }

extern "C" void nn_launch(Body kernel, void** args, const unsigned* grid, const unsigned* block, int fibers) {
  if (!stacks) stacks = static_cast<char*>(malloc(kMaxThreads * kStack));
  body = kernel;
  arguments = args;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  num_threads = block[0] * block[1] * block[2];
  for (unsigned z = 0; z < grid[2]; ++z)
    for (unsigned y = 0; y < grid[1]; ++y)
      for (unsigned x = 0; x < grid[0]; ++x) {
        blockIdx = {x, y, z};
        if (fibers) {
          run_block();
        } else {
          for (int i = 0; i < num_threads; ++i) {
            set_thread(i);
            kernel(args);
          }
        }
      }
}
