import math
from dataclasses import replace

import numpy as np
import pytest

from eirehn.report.content import Confusion, WordGroups


def test_confusion_against_a_count_by_hand():
    part = Confusion("a", ["one", "two"], [[[8, 2], [1, 4]], [[6, 4], [0, 5]]])
    assert part.summed.tolist() == [[14, 6], [1, 9]]
    assert part.shares.tolist() == [[0.7, 0.3], [0.1, 0.9]]
    assert part.precision == pytest.approx([14 / 15, 9 / 15])


def test_mean_and_deviation_of_groups():
    part = WordGroups("m", ["a", "b"], ["1", "2"], [[1, 2, 3], [0, 0, 4]], [5.0, math.nan], [6.0, 7.0])
    first = np.repeat([0, 1, 2], [1, 2, 3])
    assert part.mean == pytest.approx([first.mean(), 2.0])
    assert part.std == pytest.approx([first.std(), 0.0])
    assert part.words == [6, 4]
    assert replace(part, layers=2).words == [3, 2]
