"""`python -m pagedchat`."""

import sys

from pagedchat.cli import main

sys.exit(main())
