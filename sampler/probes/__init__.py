"""One file per source of metrics."""
