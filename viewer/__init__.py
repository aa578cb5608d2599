"""The terminal viewer: its place among the folders. Nothing stands here yet."""
