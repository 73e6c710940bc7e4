"""Programs that decode, align and score, and those for lattices."""
