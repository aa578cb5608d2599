"""The terminal viewer's parts that need no terminal: from logs to curves, and from curves to characters.

`preview` and `exact` read a log, in a moment and in full, `live` goes on with it, and `store` is a run as a viewer sees
it; `curves` hold a metric for drawing at any width; `raster` draws them. The screens are still to come.
"""
