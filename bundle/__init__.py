"""A run as one checked file: made, read, and taken apart again."""
