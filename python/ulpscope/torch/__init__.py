"""Recording of PyTorch. Nothing here is imported before ulpscope.record()."""
