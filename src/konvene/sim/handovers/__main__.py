"""`python -m konvene.sim.handovers` is `comparison.main`."""

from konvene.sim.handovers.comparison import main

main()
