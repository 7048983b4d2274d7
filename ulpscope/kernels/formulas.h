// Elementwise formulas, one each, shared by host and device. A formula is a template over a lane type V: a Highway vector, a float or
// a double (the plain twin, also what a device thread runs). Arithmetic uses the operators of lanes.h only, and never a fused
// multiply-add: twins must round at the same places. A formula has a name (its op's), a number of inputs, and one value out.
#pragma once
