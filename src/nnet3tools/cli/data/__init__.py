"""Programs for features, matrices, alignments and statistics that recipes need."""
