"""What several test files share: reference formulas, networks, harnesses, an emulated GPU."""
