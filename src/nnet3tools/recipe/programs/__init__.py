"""The programs of recipes: trainings, their reports, and the check of their data."""
