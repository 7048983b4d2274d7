#!/usr/bin/env python3
"""Runs a file of tests of this folder, in it. usage: run.py FILE      exit 0: passed, 1: some failed, 77: skipped for want of PyTorch"""

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
    torch.set_num_threads(1)
    tests = unittest.defaultTestLoader.loadTestsFromName(sys.argv[1].removesuffix(".py"))
    return 0 if unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
