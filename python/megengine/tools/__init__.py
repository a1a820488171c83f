"""Programs for the command line: ``python -m megengine.tools.<name>``, ``mge <name>``; docs/tools.md has them all."""
