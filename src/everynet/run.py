"""Where runs lived before they were called `everynet.runs`: says so, and no more."""

raise ImportError("everynet.run is a function now: write everynet.run(recipe), or everynet.runs")
