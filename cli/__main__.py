"""`python -m runferry.cli` is the command `runferry`."""

from . import main

main()
