"""The messages of the services ``csi.v1.Identity`` and ``csi.v1.Node``, as far as the plugin has them; made when they
are first used: no generated code, and a pool of their own.

Source: the Container Storage Interface, version 1 (https://github.com/container-storage-interface/spec/blob/master/spec.md).
Enumerations are numbers here, which is the same on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "csi.v1"
METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "Identity": ("GetPluginInfo", "GetPluginCapabilities", "Probe"),
    "Node": ("NodeGetInfo", "NodeGetCapabilities", "NodePublishVolume", "NodeUnpublishVolume"),
}
READ_ONLY_MODES: Final = frozenset({2, 3})
"""SINGLE_NODE_READER_ONLY, MULTI_NODE_READER_ONLY."""
MODES: Final = frozenset(range(1, 8))
"""Access modes, UNKNOWN left out."""
_FIELDS: Final[Mapping[str, str]] = {
    "GetPluginInfoRequest": "",
    "GetPluginInfoResponse": "name 1 string, vendor_version 2 string",
    "GetPluginCapabilitiesRequest": "",
    "GetPluginCapabilitiesResponse": "capabilities 1 *PluginCapability",
    "PluginCapability": "",
    "ProbeRequest": "",
    "ProbeResponse": "ready 1 BoolValue",
    "BoolValue": "value 1 bool",
    "NodeGetInfoRequest": "",
    "NodeGetInfoResponse": "node_id 1 string, max_volumes_per_node 2 int64",
    "NodeGetCapabilitiesRequest": "",
    "NodeGetCapabilitiesResponse": "capabilities 1 *NodeServiceCapability",
    "NodeServiceCapability": "",
    "BlockVolume": "",
    "MountVolume": "fs_type 1 string, mount_flags 2 *string, volume_mount_group 3 string",
    "AccessMode": "mode 1 int32",
    "VolumeCapability": "block 1 BlockVolume?, mount 2 MountVolume?, access_mode 3 AccessMode",
    "NodePublishVolumeRequest": "volume_id 1 string, publish_context 2 map, staging_target_path 3 string, "
    "target_path 4 string, volume_capability 5 VolumeCapability, readonly 6 bool, secrets 7 map, volume_context 8 map",
    "NodePublishVolumeResponse": "",
    "NodeUnpublishVolumeRequest": "volume_id 1 string, target_path 2 string",
    "NodeUnpublishVolumeResponse": "",
}
"""Of each message its fields: name, number, type; ``*`` repeated, ``map`` of strings, ``?`` one of several."""

_Field: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _Field.TYPE_STRING, "bool": _Field.TYPE_BOOL, "int32": _Field.TYPE_INT32, "int64": _Field.TYPE_INT64,
}  # fmt: skip


def messages() -> dict[str, Any]:
    """The classes, by name without the package."""
    file = descriptor_pb2.FileDescriptorProto(name="headrace/csi.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for told in filter(None, fields.split(", ")):
            _add(message, *told.split(" "))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # pyright: ignore[reportDeprecated]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _FIELDS}


def _add(message: Any, name: str, number: str, kind: str) -> None:
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.endswith("?"):
        kind = kind[:-1]
        if not message.oneof_decl:
            message.oneof_decl.add(name="access_type")
        field.oneof_index = 0
    if kind == "map":
        title = "".join(word.capitalize() for word in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=title)
        entry.options.map_entry = True
        _add(entry, "key", "1", "string")
        _add(entry, "value", "2", "string")
        kind = f"*{message.name}.{title}"
    if kind.startswith("*"):
        kind = kind[1:]
        field.label = _Field.LABEL_REPEATED
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
