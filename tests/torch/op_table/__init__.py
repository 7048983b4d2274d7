"""The table of ops: one row each, with PyTorch's function, how inputs are drawn, and the formulas that the roundings are counted by.

A row without formulas is exact: what it computes, or its gradient, only moves or chooses elements. Formulas are those of
docs/ops.md, of Balls (balls.py); `store()` stands where a tensor is written, and `widened` where a formula is computed in FP64.
"""

from op_table.elementwise import ELEMENTWISE
from op_table.linear import MOVES, PRODUCTS
from op_table.losses import LOSSES
from op_table.normalization import NORMALIZATIONS
from op_table.recurrent import RECURRENT
from op_table.reductions import REDUCTIONS
from op_table.windows import WINDOWS

ROWS = [*ELEMENTWISE, *MOVES, *PRODUCTS, *RECURRENT, *REDUCTIONS, *WINDOWS, *NORMALIZATIONS, *LOSSES]
