"""Options of the decoder's search for tests, whose graphs are tiny."""

from typing import Any

from nnet3tools.decoding.options import SearchOptions


def search_options(beam: float, **others: Any) -> SearchOptions:
    """Options with min_active and lattice_beam 0 unless given, so that few tokens survive."""
    return SearchOptions(beam, **{"min_active": 0, "lattice_beam": 0.0, **others})
