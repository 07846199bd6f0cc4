"""Command line entry point: `python -m konvene.sim.handovers` runs `comparison.main`."""

from konvene.sim.handovers.comparison import main

main()
