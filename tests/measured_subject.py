"""A service on one host, as a measurement records it."""

from headfirst.control.bench.result import BenchSubject

SUBJECT = BenchSubject(
    cluster="c", service="s", replicas=[0], is_routed=False, model="m", engine="sglang", engine_version="1",
    image="i", device="cpu", hosts=["a"], tensor_parallel=1, pipeline_parallel=1, data_parallel=1,
    arguments=[],
)  # fmt: skip
