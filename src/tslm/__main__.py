"""``python -m tslm`` is the ``tslm`` command."""

import sys

from tslm.cli import main

sys.exit(main())
