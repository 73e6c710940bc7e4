"""The training programs, one small module each."""
