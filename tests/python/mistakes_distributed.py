"""Several processes, as far as one process can get them wrong."""

from __future__ import annotations

import numpy as np
from mistake import mistake

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
from megengine.distributed import helper

X = mge.tensor(np.ones((4, 3), "float32"))


@mistake(RuntimeError, "init_process_group", "environment", "torchrun", "MASTER_ADDR")
def init_process_group_without_anything():
    dist.init_process_group()


@mistake(TypeError, "init_process_group", "master_ip", "rank")
def init_process_group_with_a_rank_alone():
    dist.init_process_group(rank=1)


@mistake(AssertionError, "rank 2", "2 processes")
def init_process_group_with_a_rank_too_high():
    dist.init_process_group("localhost", 1234, 2, 2, 0)


@mistake(AssertionError, "init_process_group first")
def client_before_init_process_group():
    dist.get_client()


@mistake(TypeError, "all_reduce_sum", "Group", "new_group", "list")
def a_list_of_ranks_for_a_group():
    F.distributed.all_reduce_sum(X, [0, 1])


@mistake(TypeError, "all_reduce_sum", "Tensor", "ndarray")
def a_collective_of_an_array():
    F.distributed.all_reduce_sum(X.numpy())


@mistake(ValueError, "all_gather", "axis 2", "(4, 3)")
def a_collective_along_an_axis_that_is_not_there():
    F.distributed.all_gather(X, axis=2)


@mistake(ValueError, "remote_send", "rank 1", "rank 0 of 1")
def a_message_to_nobody():
    F.distributed.remote_send(X, 1)


@mistake(AssertionError, "Group", "0 to 0", "[0, 1]")
def a_group_of_more_processes_than_there_are():
    dist.new_group([0, 1])


@mistake(AssertionError, "reduce_method", "sum or mean", "'avg'")
def gradients_reduced_by_a_word_that_is_none():
    dist.make_allreduce_cb("avg")


@mistake(ValueError, "n_gpus", "at least 1", "0")
def a_launcher_of_no_processes():
    dist.launcher(print, n_gpus=0)


@mistake(ValueError, "backend", "gloo", "mpi")
def a_backend_that_is_none():
    with dist.override_backend("mpi"):  # here
        pass


@mistake(ValueError, "param_pack_split", "offsets", "4")
def offsets_that_do_not_fit():
    helper.param_pack_split(X.reshape(-1), [0, 4], [(4,), (8,)])
