"""Pure functions from tensors to pictures; one file a kind of picture, one look for all."""

from everynet.plot.curves import learning_curve as learning_curve
from everynet.plot.curves import logged_curves as logged_curves
from everynet.plot.curves import moving_mean as moving_mean
from everynet.plot.film import Film as Film
from everynet.plot.images import activation_maps as activation_maps
from everynet.plot.images import filters as filters
from everynet.plot.images import image_grid as image_grid
from everynet.plot.images import misclassified as misclassified
from everynet.plot.layers import layer_lines as layer_lines
from everynet.plot.matrix import confusion_matrix as confusion_matrix
from everynet.plot.matrix import heatmap as heatmap
from everynet.plot.panels import Panel as Panel
from everynet.plot.panels import panels as panels
from everynet.plot.paths import descent_paths as descent_paths
from everynet.plot.paths import error_decay as error_decay
from everynet.plot.paths import landscapes as landscapes
from everynet.plot.paths import step_sizes as step_sizes
from everynet.plot.points import scatter as scatter
from everynet.plot.surface import boundary as boundary
from everynet.plot.surface import decision_regions as decision_regions
from everynet.plot.surface import decision_surface as decision_surface
from everynet.plot.surface import square as square
from everynet.plot.surface import unit_maps as unit_maps

__all__ = [name for name, value in sorted(globals().items()) if callable(value)]


def __dir__() -> list[str]:
    return __all__
