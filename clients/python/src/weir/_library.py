"""libweir through ctypes: the structures and functions of weir/weir.h that are used here."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
import sysconfig
from ctypes import (
    POINTER, c_bool, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p,
)  # fmt: skip
from typing import Any, List

from ._verdict import WeirError

ABI_VERSION = 4
AS_HELD = 2**64 - 1  # a cost of weir_settle
NAME = "libweir.so.4"
# Where it is installed to, but not found without `ldconfig`.
FOLDERS = (f"/usr/local/lib/{sysconfig.get_config_var('MULTIARCH')}", "/usr/local/lib", "/usr/local/lib64")


class Str(ctypes.Structure):
    _fields_ = [("ptr", c_char_p), ("len", c_size_t)]


class OutStr(ctypes.Structure):
    """The same, to be read: a c_char_p would end at the first NUL."""

    _fields_ = [("ptr", c_void_p), ("len", c_size_t)]

    def octets(self) -> bytes:
        return ctypes.string_at(self.ptr, self.len) if self.ptr else b""


class Header(ctypes.Structure):
    _fields_ = [("name", Str), ("value", Str)]


class OutHeader(ctypes.Structure):
    _fields_ = [("name", OutStr), ("value", OutStr)]


class Cost(ctypes.Structure):
    _fields_ = [("unit", Str), ("amount", c_uint64)]


class Charged(ctypes.Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("limit", "key", "origin", "rate", "cost")),
        ("unit", c_uint32),
        ("how", c_uint32),
    ]


class Receipt(ctypes.Structure):
    TEXT_MAX = 4000
    _fields_ = [
        ("count", c_uint32),
        ("hold", c_uint32),
        ("number", c_uint64),
        ("at_us", c_int64),
        ("until_us", c_int64),
        ("store_us", c_int64),
        ("seal", c_uint64),
        ("store_seal", c_uint64),
        ("charged", Charged * 16),
        ("keys_len", c_uint32),
        ("keys", c_char * 1000),
    ]


class Left(ctypes.Structure):
    _fields_ = [
        ("rule", c_uint32),
        ("limit", c_uint32),
        ("known", c_bool),
        ("refuses", c_bool),
        ("reading", c_uint8),
        ("remaining", c_uint64),
        ("given_max", c_uint64),
        ("more_ms", c_int64),
        ("reset_ms", c_int64),
        ("window_ms", c_int64),
    ]


class Usage(ctypes.Structure):
    _fields_ = [("count", c_uint32), ("named", c_uint32), ("listed", c_uint32), ("rules", c_uint64), ("left", Left * 17)]


class CRequest(ctypes.Structure):
    _fields_ = [
        *((name, Str) for name in ("method", "path", "host", "ip", "peer", "user", "event", "key", "domain")),
        ("headers", POINTER(Header)),
        ("header_count", c_size_t),
        ("descriptor", POINTER(Header)),
        ("descriptor_count", c_size_t),
        ("peer_bytes", Str),
        ("given_max", c_uint64),
        ("given_window_ms", c_uint64),
        ("cost", c_uint64),
        ("costs", POINTER(Cost)),
        ("cost_count", c_size_t),
        ("ttl_ms", c_uint32),
        ("keep", c_bool),
        ("peek", c_bool),
        ("brief", c_bool),
        ("attempt", c_bool),
        ("charging", ctypes.c_int),
        ("with", c_void_p),
        ("own", c_void_p),
        ("own_shadow", c_void_p),
        ("context", c_void_p),
        ("receipt", POINTER(Receipt)),
        ("if_held", c_bool),
        ("shadows", c_void_p),
        ("usage", POINTER(Usage)),
        ("each_rule", c_void_p),
    ]


class CVerdict(ctypes.Structure):
    _fields_ = [
        ("allowed", c_bool),
        ("applied", c_bool),
        ("unavailable", c_bool),
        ("matched", c_bool),
        ("status", c_uint16),
        ("penalty", c_bool),
        ("unnamed", c_bool),
        ("max", c_uint64),
        ("remaining", c_uint64),
        ("debt", c_uint64),
        ("reset_ms", c_int64),
        ("retry_after_ms", c_int64),
        ("window_ms", c_int64),
        ("window_end_ms", c_int64),
        ("shadow_count", c_uint32),
        ("rule", c_char * 101),
        ("limit", c_char * 51),
        ("unit", c_char * 51),
        ("private_rule", c_uint32),
        ("private_rules", c_uint64),
    ]


class CRefusal(ctypes.Structure):
    _fields_ = [
        ("status", c_uint16),
        ("body", OutStr),
        ("content_type", OutStr),
        ("headers", POINTER(OutHeader)),
        ("header_count", c_size_t),
    ]


class CHeaders(ctypes.Structure):
    SETTING = 8  # the style that the setting `headers` names
    _fields_ = [("count", c_size_t), ("header", OutHeader * 12), ("text", c_char * 2700)]


class CError(ctypes.Structure):
    _fields_ = [("code", c_int), ("text", c_char * 1000)]

    def __str__(self) -> str:
        return bytes(self.text).decode("utf-8", "replace")


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("rules_file", c_char_p),
        ("rules_text", c_char_p),
        ("rules_text_len", c_size_t),
        ("cells_file", c_char_p),
        ("cells_keys", c_uint64),
        ("cells_bytes", c_uint64),
        ("watch_ms", c_uint32),
        *(
            (name, c_void_p)
            for name in ("user_id", "user_id_data", "refuse", "refuse_data", "on_rules", "on_rules_data")
        ),
        ("cells_memory", c_void_p),
        ("cells_memory_bytes", c_size_t),
        ("trusted_proxies", c_char_p),
        ("counters", c_char_p),
        ("store_deadline_ms", c_uint32),
        ("store_hosts", c_uint32),
        ("on_store", c_void_p),
        ("on_store_data", c_void_p),
        ("never_wait", c_bool),
    ]


class StoreStatus(ctypes.Structure):
    _fields_ = [
        ("configured", c_bool),
        ("up", c_bool),
        ("hosts", c_uint32),
        ("nodes", c_uint32),
        ("nodes_up", c_uint32),
        ("offset_us", c_int64),
        ("counts", c_uint64 * 14),
        ("address", c_char * 200),
        ("problem", c_char * 200),
    ]


# name, result, arguments; those of structures are by reference
FUNCTIONS = [
    ("weir_abi_version", c_int, []),
    ("weir_open", c_int, [POINTER(c_void_p), POINTER(Options), POINTER(CError)]),
    ("weir_close", None, [c_void_p]),
    ("weir_now_us", c_int64, []),
    ("weir_check_soon", c_int, [c_void_p, POINTER(CRequest), c_int64, c_int64, POINTER(CVerdict)]),
    ("weir_detect_held", c_int, [c_void_p, c_char_p, c_char_p, POINTER(Receipt), POINTER(CVerdict)]),
    ("weir_headers", None, [c_void_p, POINTER(CRequest), POINTER(CVerdict), c_uint, POINTER(CHeaders)]),
    ("weir_refuse", c_int, [c_void_p, POINTER(CRequest), POINTER(CVerdict), POINTER(CRefusal)]),
    ("weir_settle", c_int, [c_void_p, POINTER(Receipt), c_uint64, POINTER(Cost), c_size_t, c_int64]),
    ("weir_renew", c_int, [c_void_p, POINTER(Receipt), c_uint32, c_int64]),
    ("weir_receipt_text", c_size_t, [POINTER(Receipt), c_char_p, c_size_t]),
    ("weir_receipt_read", c_int, [Str, POINTER(Receipt)]),
    ("weir_poll", c_int, [c_void_p, POINTER(CError)]),
    ("weir_store_status", None, [c_void_p, POINTER(StoreStatus)]),
]


def _places() -> List[str]:
    """Where the library may be; a name without a folder is looked up by the dynamic linker."""
    named = os.environ.get("WEIR_LIBRARY")
    if named:
        return [named]
    found = [NAME]
    other = ctypes.util.find_library("weir")
    if other:
        found.append(other)
    return found + [os.path.join(folder, NAME) for folder in FOLDERS]


def _load(kind: Any) -> Any:
    """The first that is there; what is there and cannot be loaded is worth telling."""
    reasons = []
    for place in _places():
        try:
            return kind(place)
        except OSError as error:
            reasons.append(str(error))
    raise WeirError(
        f"the library {NAME} was not found ({reasons[0]}). Install weir (`meson install -C build`), or name the file in "
        "the environment variable WEIR_LIBRARY. Weir.connect needs no library."
    )


@functools.lru_cache(maxsize=None)
def library(holds_gil: bool) -> Any:
    """With `holds_gil` other threads of Python stand still during a call: right for decisions in memory, which take less
    time than handing the lock over and getting it back."""
    found = _load(ctypes.PyDLL if holds_gil else ctypes.CDLL)
    for name, result, arguments in FUNCTIONS:
        try:
            function = getattr(found, name)
        except AttributeError:
            raise WeirError(f"the library {found._name} has no {name}: install the newest weir") from None
        function.restype, function.argtypes = result, arguments
        if name == "weir_abi_version" and function() != ABI_VERSION:
            raise WeirError(
                f"the library {found._name} has version {function()} of weir's interface, and this package is for "
                f"{ABI_VERSION}: install a weir and a package of the same time"
            )
    return found
