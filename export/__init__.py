"""Runs in other forms: rows as JSONL, CSV, Parquet, TensorBoard event files, and one HTML page that needs nothing."""
