"""Metrics of a network: one value for each sample, or counts over all of them."""

from everynet.metrics.bleu import corpus_bleu as corpus_bleu
from everynet.metrics.bleu import match_ids as match_ids
from everynet.metrics.bleu import match_texts as match_texts
from everynet.metrics.bleu import sentence_bleu as sentence_bleu
from everynet.metrics.classification import accuracy as accuracy
from everynet.metrics.classification import balanced_accuracy as balanced_accuracy
from everynet.metrics.classification import balanced_weights as balanced_weights
from everynet.metrics.classification import confusion as confusion
from everynet.metrics.classification import macro_f1 as macro_f1
from everynet.metrics.classification import majority_accuracy as majority_accuracy
from everynet.metrics.classification import name_classes as name_classes
from everynet.metrics.classification import precision_recall_f1 as precision_recall_f1
from everynet.metrics.classification import predict_class as predict_class
from everynet.metrics.distances import energy_distance as energy_distance
from everynet.metrics.ranking import auc as auc
from everynet.metrics.ranking import average_precision as average_precision
from everynet.metrics.ranking import f1_threshold as f1_threshold
from everynet.metrics.ranking import recall_threshold as recall_threshold
from everynet.metrics.regression import mae as mae
from everynet.metrics.regression import r2 as r2
from everynet.metrics.regression import rmse as rmse
from everynet.metrics.summary import class_report as class_report
from everynet.metrics.summary import classified as classified
from everynet.metrics.summary import regressed as regressed
from everynet.metrics.summary import summarise_outputs as summarise_outputs
