"""`python -m datapipe` is the command `datapipe`."""

from datapipe.cli import main

main()
