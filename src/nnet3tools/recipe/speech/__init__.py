"""Training of a recognizer from recordings and transcripts: sizes, stages, scores, the report."""
