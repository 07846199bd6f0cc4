"""`python -m konvene` is `konvene`."""

from __future__ import annotations

from konvene.cli import main

if __name__ == "__main__":
    main()
