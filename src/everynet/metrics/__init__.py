"""Figures that judge a network: one value for each sample, or counts over all of them."""

from everynet.metrics.classification import accuracy as accuracy
from everynet.metrics.classification import chosen as chosen
from everynet.metrics.classification import confusion as confusion
from everynet.metrics.distances import energy_distance as energy_distance
