"""Pure functions from tensors to figures; one file a kind of picture, one look for all."""

from everynet.plot.attack import attacked as attacked
<<<<<<< HEAD
from everynet.plot.costs import layer_costs as layer_costs
=======
from everynet.plot.convolution import backward_maps as backward_maps
from everynet.plot.convolution import flipped as flipped
from everynet.plot.convolution import pooled as pooled
from everynet.plot.convolution import shrunk as shrunk
from everynet.plot.convolution import slid as slid
from everynet.plot.convolution import toeplitz_form as toeplitz_form
>>>>>>> conv
from everynet.plot.curves import learning_curve as learning_curve
from everynet.plot.curves import logged as logged
from everynet.plot.curves import moving_mean as moving_mean
from everynet.plot.equivariance import turned_maps as turned_maps
from everynet.plot.evidence import evidence as evidence
from everynet.plot.evidence import surrogates as surrogates
<<<<<<< HEAD
from everynet.plot.fields import angles_needed as angles_needed
from everynet.plot.fields import influences as influences
from everynet.plot.fields import reconstructions as reconstructions
from everynet.plot.fields import solutions as solutions
=======
from everynet.plot.filtering import filtered as filtered
from everynet.plot.filtering import matched as matched
from everynet.plot.filtering import shares as shares
>>>>>>> conv
from everynet.plot.generation import made_and_judged as made_and_judged
from everynet.plot.generation import noise_to_points as noise_to_points
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
from everynet.plot.membranes import bent_windows as bent_windows
from everynet.plot.membranes import membranes as membranes
from everynet.plot.neuron import action_potential as action_potential
from everynet.plot.neuron import phase_plane as phase_plane
from everynet.plot.panels import Panel as Panel
from everynet.plot.panels import panels as panels
from everynet.plot.paths import decay as decay
from everynet.plot.paths import descent_paths as descent_paths
from everynet.plot.paths import landscapes as landscapes
from everynet.plot.paths import step_sizes as step_sizes
from everynet.plot.play import film_strip as film_strip
from everynet.plot.play import policy_maps as policy_maps
from everynet.plot.points import scatter as scatter
from everynet.plot.population import tuning_curves as tuning_curves
from everynet.plot.population import tuning_planes as tuning_planes
from everynet.plot.segmentation import feature_u as feature_u
from everynet.plot.segmentation import segmented as segmented
from everynet.plot.segmentation import uncertain_pixels as uncertain_pixels
from everynet.plot.separation import mistake_bound as mistake_bound
from everynet.plot.separation import separating_line as separating_line
from everynet.plot.surface import boundary as boundary
from everynet.plot.surface import decision_regions as decision_regions
from everynet.plot.surface import decision_surface as decision_surface
from everynet.plot.surface import square as square
from everynet.plot.surface import unit_maps as unit_maps
