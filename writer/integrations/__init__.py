"""Loggers for training frameworks, one module each: nothing of a framework is imported before its module is."""
