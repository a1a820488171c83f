"""Names of the original's private modules that stand for parts of its own engine: they can be imported, not used.

A program that imports one beside others runs; a call says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_NAMES = {
    "common": "DeviceProperties HostTensorND get_device_prop get_supported_sm_versions init_nccl_env invoke_op",
    "core2": """FormatType GradKey GradSlot OpInfo Trace VarInfo _clear_algorithm_cache _get_frame_cache_id
        _mge_backtrace adaptive_pool2d_cpp add_backward_callback astensor1d_cpp backward batched_matmul_cpp
        begin_record_values convert_inputs_cpp convert_single_value_cpp cupti_available disable_cupti enable_cupti
        end_record_values get_backward_closure get_grad_key get_grad_slot get_handle_id get_marked_input_tensor
        get_marked_output_tensor get_marked_tensor getitem_cpp group_end group_start is_external_convert
        is_tracing_module marked_input_tensor matmul_cpp name_tensor pixel_shuffle_cpp pop_scope_with_type print_stats
        push_scope_with_type record_scope reset_stats set_cpp_use_symbolic_shape set_external_convert
        set_external_convert_hook set_module_trace_hook set_module_tracing set_py_device_type set_py_external_type
        set_py_tensor_type set_py_varnode_type set_python_backtrace_enabled set_transformation_backtrace_enabled
        setitem_cpp start_profile stop_profile stop_step tracekey unset_external_convert unset_module_tracing""",
    "graph": """AsyncExecutable DeviceTensorNDRendezvous GraphOptimizeOptions GraphProfiler GraphProfiler2
        HostTensorNDRendezvous TensorAttrRendezvous attr_output_callback get_info_for_strip make_shared
        value_output_callback virtual_dep""",
    "imperative": "make_backward_graph",
    "ops": "PyOpBase _custom",
    "utils": """AtomicUint64 PersistentCache TensorSanityCheckImpl _check_any_worker_failed _defrag _get_dtype_num
        _get_serialized_dtype _reset_worker_pids _set_fork_exec_path_for_timed_func _set_worker_pids
        _set_worker_signal_handlers _timed_func_exec_cb create_mm_server""",
}
_MADE: dict[tuple[str, str], Any] = {}


def _refusing(full: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{full}: is a part of MegEngine's own engine; there is none like it here.")

    return refuse


def stand_in(module: str, name: str) -> Any:
    """What ``name`` of ``module`` is where nothing else is; an AttributeError for a name that is not the original's."""
    own = module.rsplit(".")[-1]
    if name not in _NAMES.get(own, "").split():
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if (own, name) not in _MADE:
        refuse = _refusing(f"{module}.{name}")
        refuse.__name__ = refuse.__qualname__ = name
        made = type(name, (), {"__new__": refuse, "__module__": module}) if name[0].isupper() else refuse
        _MADE[own, name] = made
    return _MADE[own, name]
