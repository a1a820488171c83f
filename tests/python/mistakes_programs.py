"""What goes wrong inside compiled programs: values out of range, record levels."""

from __future__ import annotations

import numpy as np
from mistake import ALL, ROOT, mistake

import megengine as mge
import megengine.functional as F
import megenginelite as lite

TABLE = np.arange(12, dtype="float32").reshape(4, 3)
GOOD = (mge.Tensor(TABLE), mge.Tensor([0, 3], dtype="int32"))
BAD = (mge.Tensor(TABLE), mge.Tensor([0, 7], dtype="int32"))
MODEL = ROOT / "tests/data/lite/net_v1.mge"


@mistake(IndexError, "7", "float32[4,3]", modes=ALL, good=GOOD, bad=BAD)
def an_index_beyond_the_rows(table, index):
    return F.exp(table[index] * 2)  # here


@mistake(IndexError, "7", modes=ALL, good=GOOD, bad=BAD)
def a_token_beyond_the_vocabulary(table, index):
    y = F.embedding(index, table)  # here
    return F.relu(y) + 1


def recorded(level):
    config = lite.LiteConfig()
    config.options.comp_node_seq_record_level = level
    net = lite.LiteNetwork(config)
    net.load(MODEL)
    return net


@mistake(RuntimeError, "comp_node_seq_record_level", "0, 1 or 2", "got 5")
def a_record_level_that_there_is_not():
    recorded(5)


@mistake(RuntimeError, "record level 2", "sizes of inputs cannot change", "[1,1,8,8]", "level 0 or 1")
def other_sizes_after_the_graph_is_dropped():
    net = recorded(2)
    net.forward()
    net.get_io_tensor("data").set_data_by_copy(np.zeros((1, 1, 8, 8), "float32"))
    net.forward()
