"""Power, clocks, temperature and use, read beside a measurement from outside it."""
