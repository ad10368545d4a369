import numpy as np
import pytest

from everynet.kernels.ngrams import Grams, score_tokens


@pytest.mark.parametrize(("token", "given"), [(-1, [0, -1]), (2, [1, 2])])
def test_a_number_outside_the_vocabulary_is_refused(token, given):
    """The last unigram is the start symbol, which is no word."""
    grams = [Grams(np.arange(3, dtype=np.int32), np.array([0, 3], np.int32), *np.zeros((2, 3)))]
    match = rf"a word's number \({token}\) must be at least 0 and below 2"
    with pytest.raises(ValueError, match=match):
        score_tokens(np.array(given), np.arange(2), grams, 0.0)
