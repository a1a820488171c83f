"""``python -m megengine.tools NAME ...`` is ``mge NAME ...``."""

import sys

from ._mge import main

if __name__ == "__main__":
    sys.exit(main())
