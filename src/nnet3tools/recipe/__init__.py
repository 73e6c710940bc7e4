"""The training driver: options give a plan of stages; workers, commands or Slurm run its jobs."""
