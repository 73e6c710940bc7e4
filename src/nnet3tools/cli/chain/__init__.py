"""Programs of LF-MMI training."""
