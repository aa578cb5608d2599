"""The TPU runtime's metric service, with messages by the protobuf runtime: an encoder that is not ours."""

from __future__ import annotations

import threading
from concurrent import futures

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

# message: field -> (number, type); a trailing * repeats, a name is another message
MESSAGES = {
    "AttrValue": {
        "string_attr": (1, "string"),
        "bool_attr": (2, "bool"),
        "int_attr": (3, "int64"),
        "double_attr": (4, "double"),
        "kvlist_attr": (6, "KeyValueList"),
    },
    "KeyValueList": {"attributes": (1, "Attribute*")},
    "Attribute": {"key": (1, "string"), "value": (2, "AttrValue")},
    "Gauge": {"as_double": (1, "double"), "as_int": (2, "int64"), "as_string": (3, "string"), "as_bool": (4, "bool")},
    "Quantile": {"quantile": (1, "double"), "value": (2, "double")},
    "Summary": {"sample_count": (1, "uint64"), "sample_sum": (2, "double"), "quantile": (3, "Quantile*")},
    "Exponential": {"num_finite_buckets": (1, "int32"), "growth_factor": (2, "double"), "scale": (3, "double")},
    "Explicit": {"bounds": (1, "double*")},
    "Linear": {"num_finite_buckets": (1, "int32"), "width": (2, "double"), "offset": (3, "double")},
    "BucketOptions": {
        "exponential_buckets": (2, "Exponential"),
        "explicit_buckets": (3, "Explicit"),
        "linear_buckets": (4, "Linear"),
    },
    "Distribution": {
        "count": (1, "int64"),
        "mean": (2, "double"),
        "min": (3, "double"),
        "max": (4, "double"),
        "bucket_options": (6, "BucketOptions"),
        "bucket_counts": (7, "int64*"),
    },
    "Metric": {
        "attribute": (1, "Attribute"),
        "gauge": (3, "Gauge"),
        "counter": (4, "Gauge"),
        "distribution": (5, "Distribution"),
        "summary": (6, "Summary"),
    },
    "TPUMetric": {"name": (1, "string"), "description": (2, "string"), "metrics": (3, "Metric*")},
    "MetricRequest": {"metric_name": (1, "string")},
    "MetricResponse": {"metric": (1, "TPUMetric")},
}
ONEOFS = {"AttrValue", "Gauge", "BucketOptions"}  # all their fields; that gives them presence


def _classes():
    proto = descriptor_pb2.FileDescriptorProto(name="tpu.proto", package="tpu.monitoring.runtime", syntax="proto3")
    field_types = descriptor_pb2.FieldDescriptorProto
    for name, fields in MESSAGES.items():
        message = proto.message_type.add(name=name)
        if name in ONEOFS:
            message.oneof_decl.add(name="value_of")
        for field_name, (number, kind) in fields.items():
            bare = kind.removesuffix("*")
            field = message.field.add(name=field_name, number=number)
            field.label = field_types.LABEL_REPEATED if kind.endswith("*") else field_types.LABEL_OPTIONAL
            if bare in MESSAGES:
                field.type, field.type_name = field_types.TYPE_MESSAGE, f".tpu.monitoring.runtime.{bare}"
            else:
                field.type = getattr(field_types, f"TYPE_{bare.upper()}")
            if name in ONEOFS:
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tpu.monitoring.runtime.{name}"))
        for name in MESSAGES
    }


CLASSES = _classes()


def encode(metric):
    """A MetricResponse of the TPUMetric that JSON describes."""
    return json_format.ParseDict({"metric": metric}, CLASSES["MetricResponse"]()).SerializeToString()


class Service:
    """Serves answers by metric name on a port of this host; `hang` makes it hold every answer back until `stop`."""

    def __init__(self, answers, port=0):
        import grpc

        self.asked = []
        self.hang = False
        self._released = threading.Event()
        self.answers = {name: encode(metric) for name, metric in answers.items()}
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        handler = grpc.unary_unary_rpc_method_handler(self._reply)
        self._server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    "tpu.monitoring.runtime.RuntimeMetricService", {"GetRuntimeMetric": handler}
                )
            ]
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def keep(self, names):
        self.answers = {name: self.answers[name] for name in names}

    def _reply(self, request, context):
        import grpc

        name = CLASSES["MetricRequest"].FromString(request).metric_name
        self.asked.append(name)
        if self.hang:
            self._released.wait(30)
        if name not in self.answers:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no metric {name}")
        return self.answers[name]

    def stop(self):
        self._released.set()
        self._server.stop(None).wait()
