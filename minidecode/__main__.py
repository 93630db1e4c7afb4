"""`python -m minidecode` is the command `minidecode`."""

import sys

from .cli import main

sys.exit(main())
