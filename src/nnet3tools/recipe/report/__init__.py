"""Reports of training directories: a page made from their log files."""

from nnet3tools.recipe.report.page import report_page, write_report
