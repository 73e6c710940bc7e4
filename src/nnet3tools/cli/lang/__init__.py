"""Programs that build a system: lang folders, trees, graphs."""
