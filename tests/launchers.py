"""What tests of the program know of the environment: their own, and what launchers put into that of ranks."""

import os

# Variables of launchers, and what a mode that the caller's shell prefers would be set by: not what is tested.
FOREIGN = ("ESPALIER_", "OMPI_", "PMI", "SLURM_", "MPI_LOCAL")
SANITIZED = "ASAN_OPTIONS" in os.environ  # tests/CMakeLists.txt sets it; everything takes many times as long
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def plain_environment(cache, **variables):
    """The environment of a process that nobody launched; `cache` is its user's cache folder."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(FOREIGN) and name not in TORCHRUN}
    return {**kept, "XDG_CACHE_HOME": cache, **variables}


def torchrun_variables(rank, world):
    return dict(zip(TORCHRUN, (str(rank), str(world), str(rank), str(world))))
