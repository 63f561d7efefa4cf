"""``python -m coldiron``: the command line, where its script is not on PATH."""

from coldiron.cli import main

main()
