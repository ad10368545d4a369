"""Where recipes lived before they were called `everynet.recipes`: says so, and no more."""

raise ImportError("everynet.recipe is a function now: write from everynet import Training, Data")
