"""`python -m pagedchat`."""

import sys

from pagedchat.cli.main import main

sys.exit(main())
