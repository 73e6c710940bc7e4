"""Programs that build the parts of a system: lang folders, trees, graphs."""
