"""Reports of training directories: a page from their log files, and pictures of its curves."""

from nnet3tools.recipe.report.page import report_page, write_report

__all__ = ["report_page", "write_report"]
