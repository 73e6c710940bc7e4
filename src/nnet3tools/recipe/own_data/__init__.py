"""Users' own recordings and transcripts: reading, checking, and writing as Kaldi data."""
