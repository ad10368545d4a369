"""Pure functions from tensors to figures; one file a kind of picture, one look for all."""

from everynet.plot.curves import learning_curve as learning_curve
from everynet.plot.images import activation_maps as activation_maps
from everynet.plot.images import filters as filters
from everynet.plot.images import image_grid as image_grid
from everynet.plot.images import misclassified as misclassified
from everynet.plot.linear import class_images as class_images
from everynet.plot.linear import class_table as class_table
from everynet.plot.linear import coefficients as coefficients
from everynet.plot.linear import fitted as fitted
from everynet.plot.linear import probability_curve as probability_curve
from everynet.plot.linear import residuals as residuals
from everynet.plot.matrix import confusion_matrix as confusion_matrix
from everynet.plot.matrix import heatmap as heatmap
from everynet.plot.panels import Panel as Panel
from everynet.plot.panels import panels as panels
from everynet.plot.paths import decay as decay
from everynet.plot.paths import descent_paths as descent_paths
from everynet.plot.paths import landscapes as landscapes
from everynet.plot.paths import step_sizes as step_sizes
from everynet.plot.separation import mistake_bound as mistake_bound
from everynet.plot.separation import separating_line as separating_line
from everynet.plot.surface import boundary as boundary
from everynet.plot.surface import decision_regions as decision_regions
from everynet.plot.surface import decision_surface as decision_surface
from everynet.plot.surface import square as square
from everynet.plot.surface import unit_maps as unit_maps
