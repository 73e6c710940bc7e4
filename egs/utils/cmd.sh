# How to run a job: a command that takes a log file, then the job.  Kaldi's run.pl or queue.pl fit here too.
export train_cmd=${train_cmd:-utils/run_job.sh}
