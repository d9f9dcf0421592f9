# SPDX-License-Identifier: Apache-2.0
"""Run ONNX models on the host, with onnxruntime. It imports onnx; import it where it is needed."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime

from weft.support.errors import WeftError, explain
from weft.support.files import reason
from weft.tmodel.onnx_bounds import graphs
from weft.tmodel.onnx_control import LOOP
from weft.tmodel.onnx_runnable import check_bytes

WRONG_OPTIMIZERS = ["Pad_Fusion"]
"""Optimizers of onnxruntime 1.31 that are switched off.

Pad_Fusion moves a Pad of zeros into the pads of a MaxPool, which count as minus infinity, and fails if they then exceed
the kernel."""

FAILING_OPTIMIZERS = ["ConvAddActivationFusion"]
"""Optimizers of onnxruntime 1.31 that are switched off for a model that does not load with them.

ConvAddActivationFusion joins a convolution whose result is an output too with the sum behind it, and then misses that
output."""

MOST_OPTIMISED = 1 << 10
"""The most nodes of a graph that onnxruntime optimises, for which time grows as their square."""


def session(model: onnx.ModelProto | bytes,
            apart: Mapping[str, np.ndarray] | None = None) -> onnxruntime.InferenceSession:
    """Return a quiet onnxruntime session on one thread, so that results are the same every time.

    ``apart``: values of constants that the model only names."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, they need not be printed too
    if isinstance(model, onnx.ModelProto) and len(model.graph.node) > MOST_OPTIMISED:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for key in ("disable_quant_qdq", "disable_double_qdq_remover"):  # quantised networks as their files say it
        options.add_session_config_entry(f"session.{key}", "1")
    if apart:
        options.add_external_initializers([*apart], [*map(onnxruntime.OrtValue.ortvalue_from_numpy, apart.values())])
    content = model if isinstance(model, bytes) else model.SerializeToString()
    make = functools.partial(onnxruntime.InferenceSession, content, options, providers=["CPUExecutionProvider"],
                             enable_fallback=0)  # which tries the same again, and prints that it does
    try:
        return make(disabled_optimizers=WRONG_OPTIMIZERS)
    except RuntimeError:
        return make(disabled_optimizers=[*WRONG_OPTIMIZERS, *FAILING_OPTIMIZERS])


def into_same_arrays(engine: onnxruntime.InferenceSession) -> Callable[[Mapping[str, np.ndarray]],
                                                                      dict[str, np.ndarray]]:
    """Return a function from inputs to all outputs of a session, by name, in the same arrays at every call.

    onnxruntime would make, fill and copy new ones. It does so where an output is no float32 of a known shape."""
    outputs = engine.get_outputs()
    names = [output.name for output in outputs]
    if not all(output.type == "tensor(float)" and all(isinstance(size, int) for size in output.shape)
               for output in outputs):
        return lambda given: dict(zip(names, engine.run(names, dict(given)), strict=True))
    ends = np.cumsum([math.prod(output.shape) for output in outputs])
    parts = np.split(np.empty(ends[-1], np.float32), ends[:-1])  # numpy gets large arrays in large pages, which is fast
    arrays = {output.name: part.reshape(output.shape) for output, part in zip(outputs, parts, strict=True)}

    def run(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        binding = engine.io_binding()
        kept = {name: np.ascontiguousarray(value) for name, value in given.items()}
        for name, value in kept.items():
            binding.bind_cpu_input(name, value)
        for name, value in arrays.items():
            binding.bind_output(name, "cpu", 0, np.float32, value.shape, value.ctypes.data)
        engine.run_with_iobinding(binding)
        return arrays

    return run


MOST_EVALUATED = 1 << 24
"""The most steps of a file's model on ONNX's own evaluator, which is written in Python."""


MOST_SECONDS = 10
"""The most seconds for one run of a model with a loop, whose iterations may depend on values."""


def runner(model: onnx.ModelProto | bytes) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return a function from inputs to all outputs of a model, by name.

    It uses onnxruntime, or ONNX's own evaluator for operators that onnxruntime does not know. A model in bytes comes
    from a file: raise WeftError if it is no model, or one whose work is not bounded."""
    steps = check_bytes(model).steps if isinstance(model, bytes) else 0
    try:
        engine = session(model)
    except Exception as error:  # its errors have no common type
        if steps > MOST_EVALUATED:
            raise WeftError(explain("model of the host's part", f"{steps:.3g} steps, and an operator that onnxruntime "
                                    f"does not run ({reason(error)})", f"at most {MOST_EVALUATED:.3g} steps, which "
                                    "ONNX's own evaluator runs", "compile the model again")) from None
        return _evaluator(model, reason(error))
    names = [entry.name for entry in engine.get_outputs()]
    run = _in_time(engine) if _has_loop(model) else engine.run
    return lambda given: dict(zip(names, run(names, dict(given)), strict=True))


def _evaluator(model: onnx.ModelProto | bytes,
               refusal: str) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return :func:`runner` by ONNX's own evaluator; ``refusal``: why onnxruntime does not load the model.

    Both raise WeftError, with the refusal, where the evaluator fails too."""
    from onnx.reference import ReferenceEvaluator  # which few models need, and which takes long to import

    def refused(error: Exception) -> WeftError:
        return WeftError(explain("model", f"onnxruntime does not load it ({refusal}), and onnx's evaluator does not "
                                 f"run it ({reason(error)})", "a model that one of them runs",
                                 "export the model again, with types and operators that onnxruntime has"))

    try:
        evaluator = ReferenceEvaluator(model)
    except Exception as error:  # of no common type
        raise refused(error) from None

    def evaluated(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            with np.errstate(all="ignore"):  # onnxruntime does not warn of a division by 0 either
                return dict(zip(evaluator.output_names, evaluator.run(None, dict(given)), strict=True))
        except Exception as error:  # of no common type
            raise refused(error) from None

    return evaluated


def _has_loop(model: onnx.ModelProto | bytes) -> bool:
    """Tell whether a model has a loop."""
    read = onnx.ModelProto.FromString(model) if isinstance(model, bytes) else model
    return any(node.op_type == LOOP for graph in graphs(read.graph) for node in graph.node)


def _in_time(engine: onnxruntime.InferenceSession) -> Callable[..., Sequence[np.ndarray]]:
    """Return the session's ``run``, ended after MOST_SECONDS, as a loop's values decide how long it takes."""
    def run(names: Sequence[str], given: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
        options = onnxruntime.RunOptions()
        options.log_severity_level = 4
        watch = threading.Timer(MOST_SECONDS, setattr, (options, "terminate", True))
        watch.start()
        try:
            return engine.run(names, given, options)
        except Exception as error:  # its errors have no common type
            if not options.terminate:
                raise
            raise WeftError(explain("model of the host's part", f"a loop that still runs after {MOST_SECONDS} s",
                                    "loops that end before", "bound its turns, or run the network with onnxruntime"
                                    )) from error
        finally:
            watch.cancel()

    return run


@functools.lru_cache(maxsize=4)
def runner_of(content: bytes) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return the :func:`runner` of a model in bytes, made once for all images of a run."""
    return runner(content)


def run_model(model: onnx.ModelProto | bytes, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return all outputs of a model by name, for the inputs ``given``; see :func:`runner`."""
    return runner(model)(given)
