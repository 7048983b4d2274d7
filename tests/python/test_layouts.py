"""Structures that Python declares again have the members of the C headers, at the same places."""

import ctypes
import os
import shutil
import subprocess
import tempfile
import unittest

import recorded
from recorded import NEEDS_TORCH, torch

RECORDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "recorder")


def structures(module, prefix):
    """The structures of a module, by the names of their types in C."""
    found = {}
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind.__module__ == module.__name__:
            words = name.removeprefix("_").removesuffix("Struct")
            found[prefix + "".join("_" + letter.lower() if letter.isupper() else letter for letter in words)] = kind
    return found


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(shutil.which("cc") is None, "needs a C compiler")
class Layouts(unittest.TestCase):
    def test_members_are_where_the_headers_have_them(self):
        from ulpscope import _library
        from ulpscope.torch import tracker

        declared = {**structures(_library, "ulpscope"), **structures(recorded, "ulpscope"), **structures(tracker, "ulpscope_aten")}
        declared["ulpscope_aten_calls"] = declared.pop("ulpscope_calls")
        self.assertGreater(len(declared), 20)
        lines, expected = [], []
        for name, kind in declared.items():
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            expected.append(f"{name} {ctypes.sizeof(kind)}")
            for member, *_ in kind._fields_:
                lines.append(f'printf("{name}.{member} %zu %zu\\n", offsetof({name}, {member}), sizeof((({name} *)0)->{member}));')
                place = getattr(kind, member)
                expected.append(f"{name}.{member} {place.offset} {place.size}")
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "layouts.c"), os.path.join(folder, "layouts")
            with open(source, "w", encoding="utf-8") as file:
                file.write('#include <stddef.h>\n#include <stdio.h>\n#include "ulpscope.h"\n#include "ulpscope_aten.h"\n'
                           "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
            subprocess.run(["cc", "-std=c99", "-I", RECORDER, source, "-o", program], check=True)
            found = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        self.assertEqual(found, expected)


if __name__ == "__main__":
    unittest.main()
