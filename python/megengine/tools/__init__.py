"""Programs for the command line, ``python -m megengine.tools.<name>`` or ``mge <name>``; docs/tools.md says what each shows."""
