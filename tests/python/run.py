#!/usr/bin/env python3
"""Runs a file of tests of this folder, in it, or compiles the callbacks that see PyTorch's ops.

usage: run.py FILE | --compile      exit 0: passed, 1: some failed, 77: skipped for want of PyTorch
"""

import os
import sys
import unittest


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    os.chdir(folder)
    sys.path.insert(0, folder)
    try:
        import torch
    except ImportError:
        print("skipped: torch cannot be imported")
        return 77
    if sys.argv[1] == "--compile":
        sys.path.insert(0, os.path.join(folder, "..", "..", "python"))
        from ulpscope.torch.fast import find

        print(find())
        return 0
    torch.set_num_threads(1)
    tests = unittest.defaultTestLoader.loadTestsFromName(sys.argv[1].removesuffix(".py"))
    return 0 if unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
