#!/usr/bin/env bash
# Makes the pictures of README.md and docs/ again: trains the runs that they show, and draws them without a display.
# usage: make_pictures.sh [ULPSCOPE]
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."

ulpscope=$(realpath "${1:-build/release/bin/ulpscope}")
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

"$ulpscope" train experiments/fashion_cnn.toml --precision fp16 --steps 300 --threads 1 -o "$runs/run.h5"
"$ulpscope" train experiments/fashion_cnn.toml --precision fp32 --steps 300 --threads 1 -o "$runs/fp32.h5"
"$ulpscope" train experiments/failures/activations_overflow_fp16.toml --threads 1 -o "$runs/broken.h5"

pictures=$PWD/docs/pictures
draw() {
  local name=$1
  shift
  (cd "$runs" && "$ulpscope" screenshot "$@" -o "$pictures/$name.png" --force)
}
draw overview broken.h5 --size 1200x620
draw ranges run.h5 --view ranges --tensor '9 linear gradient (FP16)' --scale 2^6 --size 1200x720
draw why_nan broken.h5 --view why-nan --light --size 1200x760
draw step run.h5 --view step --step 150 --tensor '9.weight gradient' --size 1200x760
draw compare fp32.h5 run.h5 --view compare --light --size 1200x760
draw number run.h5 --view number --number fp16:0x2E66 --size 1200x560

# The report is a page: a browser draws it (Debian packages chromium and pngquant).
(cd "$runs" && chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1.5 --window-size=1000,1200 \
  --screenshot=report.png "file://$pictures/../../examples/reports/nan_at_step_9.html")
pngquant --force --quality 70-95 --output "$pictures/report.png" "$runs/report.png"
