"""The classes of the Python interface that the rooms below do not have in a public form.

Programs print their messages; here they go to the logger "nnet3tools" of Python's logging module.
"""

from nnet3tools.io import log

log.use_logging()
