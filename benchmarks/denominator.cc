// Kaldi's side of denominator.py: seconds of this process for the denominator's forward and backward
// pass over random outputs of the sizes in a file of lines "sequences frames". To be compiled in the
// tree of a built Kaldi, beside the programs of chainbin:
//
//   cp denominator.cc KALDI/src/chainbin/; make -C KALDI/src/chainbin denominator
#include <time.h>

#include <fstream>
#include <utility>
#include <vector>

#include "chain/chain-denominator.h"
#include "fstext/kaldi-fst-io.h"

static double Now() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(int argc, char *argv[]) {
  using namespace kaldi;
  if (argc != 4) return 1;
  fst::StdVectorFst *fst = fst::ReadFstKaldi(argv[1]);
  const int num_pdfs = atoi(argv[2]);
  chain::DenominatorGraph graph(*fst, num_pdfs);
  chain::ChainTrainingOptions options;
  options.leaky_hmm_coefficient = 0.1;
  std::ifstream sizes(argv[3]);
  double total = 0.0;
  for (int sequences, frames; sizes >> sequences >> frames;) {
    CuMatrix<BaseFloat> output(sequences * frames, num_pdfs), deriv(sequences * frames, num_pdfs);
    output.SetRandn();
    output.Scale(2.0);
    const double began = Now();
    chain::DenominatorComputation computation(options, graph, sequences, output);
    computation.Forward();
    computation.Backward(-1.0, &deriv);
    total += Now() - began;
  }
  printf("%.4f\n", total);
}
