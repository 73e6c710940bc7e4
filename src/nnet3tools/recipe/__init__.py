"""The training driver: options -> a plan of stages -> jobs, run by workers, commands or Slurm."""
