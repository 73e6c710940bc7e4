"""Classes of the Python interface; other public names come from the rooms below.

Programs print their messages; here they go to the logger "nnet3tools" of Python's logging module.
"""

from nnet3tools.io import log

log.use_logging()
