"""Programs on features, matrices, alignments and statistics, which recipes call beside nnet3's."""
