"""A training without disturbances, which tests compare other trainings with."""

import contextlib

import pytest

from support.tiny_training import contents, make_data, make_dir, start


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a training without disturbances, by name."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with contextlib.chdir(folder):
        make_data(folder)
        make_dir(folder / "exp")
        assert start("exp", "--num-jobs=1").wait() == 0
    return contents(folder / "exp")
