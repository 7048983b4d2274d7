#include <string>

#include "ulpscope/analyzers/report/html_parts.h"

namespace ulpscope {

namespace {

// Colours are variables, once for each theme. Those of a heatmap (h0 to h15) are ramps of even lightness that the colour-blind can
// read: from light to dark on light ground, from dark to light on dark ground.
constexpr std::string_view kLight = R"(:root {
  color-scheme: light dark;
  --page: #f5f6f8; --card: #ffffff; --ink: #1b2430; --soft: #5d6978; --line: #dfe3e8; --hover: #f0f3f7; --accent: #1f5fa8;
  --good: #1a7a48; --good-soft: #e6f4ec; --warn: #925200; --warn-soft: #fdf1dd; --bad: #b3261e; --bad-soft: #fce9e7;
  --note: #3b5f86; --note-soft: #e8eff7; --plot: #f7f8fa; --casing: #ffffff; --limit: #1b2430;
  --fits: #3f7fbf; --coarse: #d99a1c; --lost: #9a4f96; --over: #c8372d;
  --s0: #1f6fb4; --s1: #d1690e; --s2: #1d8a5f; --s3: #b3387f; --s4: #6b5bbd; --s5: #8a6d00; --s6: #4d5966; --s7: #2b9aab;
  --h0: #f3f6e4; --h1: #e6f2d6; --h2: #d6edcb; --h3: #c2e6c2; --h4: #aadcbe; --h5: #8fd1bd; --h6: #74c4be; --h7: #5ab5bf;
  --h8: #45a4be; --h9: #3792ba; --h10: #2f7fb2; --h11: #2c6ca8; --h12: #2b589b; --h13: #28458b; --h14: #213276; --h15: #151f5a;
}
)";

constexpr std::string_view kDark =
    R"(  --page: #0f1318; --card: #171c23; --ink: #e3e8ee; --soft: #98a4b3; --line: #2b333d; --hover: #1e252e; --accent: #7fb5f2;
  --good: #63cb93; --good-soft: #14291f; --warn: #e9ae55; --warn-soft: #2d2413; --bad: #ff8d83; --bad-soft: #331a19;
  --note: #8fb4dc; --note-soft: #182432; --plot: #12161c; --casing: #000000; --limit: #f4f6f8;
  --fits: #5b9bd8; --coarse: #e2ad3e; --lost: #c283be; --over: #f06a5f;
  --s0: #6cb0ec; --s1: #f0964a; --s2: #5cc79a; --s3: #e67fb8; --s4: #a99bf0; --s5: #d0b54a; --s6: #a5b1be; --s7: #62c9d8;
  --h0: #1b1f33; --h1: #222647; --h2: #292f5c; --h3: #2d3a6f; --h4: #2e487e; --h5: #2d5689; --h6: #2b6490; --h7: #297394;
  --h8: #278295; --h9: #289193; --h10: #32a08d; --h11: #48ae83; --h12: #69bc76; --h13: #93c868; --h14: #c3d25e; --h15: #f3dc5c;
)";

constexpr std::string_view kRest = R"(* { box-sizing: border-box; }
html { scroll-padding-top: 3.5rem; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", "Noto Sans", "Liberation Sans", sans-serif; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
code { font: .875em ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "Liberation Mono", monospace; }
a { color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
main { max-width: 84rem; margin: 0 auto; padding: 1.25rem 1.25rem 0; }
h1 { font-size: 1.25rem; line-height: 1.3; margin: 1.25rem 0 .75rem; font-weight: 650; }
h2 { font-size: 1.0625rem; margin: 2rem 0 .75rem; font-weight: 650; }
h3 { font-size: .9375rem; line-height: 1.45; margin: 0 0 .5rem; font-weight: 600; }
.soft { color: var(--soft); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.125rem; }
.needs-script, .tip { display: none; }
.js .needs-script { display: inline-block; }
select { max-width: min(24rem, 100%); }
button, input, select { font: inherit; font-size: .8125rem; color: var(--ink); background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; padding: .2rem .6rem; }
button:hover { background: var(--hover); }
summary { cursor: pointer; color: var(--accent); font-size: .875rem; }
.bar { position: sticky; top: 0; z-index: 5; display: flex; align-items: center; gap: .75rem; padding: .45rem 1.25rem;
  background: var(--card); border-bottom: 1px solid var(--line); font-size: .875rem; }
.brand { font-weight: 700; color: var(--ink); text-decoration: none; letter-spacing: .01em; }
.what { color: var(--soft); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; flex: 1; min-width: 0; }
.bar nav { display: flex; gap: .9rem; }
.bar nav a { text-decoration: none; color: var(--soft); }
.bar nav a:hover { color: var(--ink); }
.badge { font-size: .6875rem; font-weight: 700; letter-spacing: .05em; padding: .1rem .5rem; border-radius: 99px; white-space: nowrap; }
.ok { --tone: var(--good); --ground: var(--good-soft); }
.warning { --tone: var(--warn); --ground: var(--warn-soft); }
.broken, .error { --tone: var(--bad); --ground: var(--bad-soft); }
.info { --tone: var(--note); --ground: var(--note-soft); }
.badge, .severity { color: var(--tone); background: var(--ground); }
.verdict { background: var(--ground); border: 1px solid var(--tone); border-left-width: 6px; border-radius: 10px; padding: 1rem 1.25rem; }
.verdict .word { margin: 0 0 .25rem; font-weight: 750; letter-spacing: .06em; color: var(--tone); font-size: 1.0625rem; }
.verdict .checked { margin: .5rem 0 0; color: var(--soft); font-size: .875rem; }
.what-happened { margin: 0 0 .5rem; }
.verdict .sentence { margin: 0; text-wrap: pretty; font-size: 1.0625rem; max-width: 62rem; }
.stopped { color: var(--warn); font-weight: 600; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(11.75rem, 1fr)); gap: .85rem 1.5rem; margin: 0; }
.facts .wide { grid-column: 1 / -1; }
.facts dt { color: var(--soft); font-size: .78125rem; }
.facts dd { margin: 0; font-weight: 550; }
.facts .wide dd { font-weight: 400; }
.finding { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--tone); border-radius: 10px;
  padding: .9rem 1.125rem; margin: 0 0 .75rem; }
.finding h3 { max-width: 68rem; text-wrap: pretty; }
.finding .finding { margin-top: .75rem; }
.severity { font-size: .6875rem; font-weight: 700; letter-spacing: .04em; text-transform: uppercase; padding: .1rem .45rem;
  border-radius: 4px; margin-right: .35rem; vertical-align: 1px; }
.advice { margin: .5rem 0; padding: .55rem .8rem; background: var(--note-soft); border-radius: 6px; max-width: 68rem; }
.snippet { margin: .5rem 0; padding: .55rem .8rem; overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; max-width: 68rem; }
.evidence { list-style: none; margin: .35rem 0; padding: 0; font-size: .875rem; }
.evidence li { padding: .2rem 0; border-top: 1px solid var(--line); }
.evidence li:first-child { border-top: 0; }
.place { font-weight: 550; margin-right: .5rem; }
.value { margin-right: .75rem; display: inline-block; }
.code { margin: .35rem 0 0; color: var(--soft); font-size: .8125rem; }
.folded { margin: .5rem 0; }
.folded > .finding { margin-top: .6rem; }
.left-out, .note, .caption { color: var(--soft); font-size: .8125rem; margin: .5rem 0 0; max-width: 68rem; }
.scroll { overflow: auto; max-height: 34rem; width: fit-content; max-width: 100%; border: 1px solid var(--line); border-radius: 8px; }
.table { margin: 0 0 1rem; }
table { border-collapse: separate; border-spacing: 0; font-size: .8125rem; overflow-wrap: normal; }
th, td { padding: .32rem .7rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; white-space: pre; }
td details { white-space: normal; min-width: 14rem; }
tbody tr:last-child > * { border-bottom: 0; }
tbody th { font-weight: 500; position: sticky; left: 0; background: var(--card); max-width: 26rem; white-space: pre-wrap; min-width: 11rem; }
tbody th.n { min-width: 0; }
tbody tr:hover > * { background: var(--hover); }
thead th { position: sticky; top: 0; z-index: 2; background: var(--card); font-weight: 600; color: var(--soft); vertical-align: bottom; }
thead th:first-child { left: 0; z-index: 3; }
thead small { font-weight: 400; }
.n { text-align: right; }
.sort { border: 0; background: none; padding: 0; font: inherit; color: inherit; text-align: inherit; white-space: nowrap; }
.sort:hover { color: var(--ink); background: none; }
.sort::after { content: "\2195"; opacity: .35; margin-left: .3em; font-size: .85em; }
[aria-sort="ascending"] .sort::after { content: "\25B2"; opacity: 1; }
[aria-sort="descending"] .sort::after { content: "\25BC"; opacity: 1; }
.tools { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: center; margin: 0 0 .65rem; font-size: .8125rem; color: var(--soft); }
.tools input[type="search"] { width: 15rem; max-width: 100%; }
.tools input[type="range"] { width: 16rem; max-width: 60vw; padding: 0; accent-color: var(--accent); vertical-align: middle; }
.tools output { color: var(--ink); font-weight: 600; min-width: 3.5em; display: inline-block; }
.tools label { display: inline-flex; gap: .5rem; align-items: center; max-width: 100%; white-space: nowrap; } .tools select { min-width: 0; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1rem; }
.plot { min-width: 0; }
.plot.histogram, .plot.heatmap, .plot.graph { grid-column: 1 / -1; }
svg { display: block; overflow: hidden; }
svg text { fill: var(--soft); font-size: 11.5px; }
.chart { display: grid; grid-template-columns: 4.25rem minmax(0, 1fr); column-gap: .4rem; }
.chart.limited { grid-template-columns: 3.25rem minmax(0, 1fr) 8.5rem; }
.chart .values, .chart .area { width: 100%; height: 190px; overflow: visible; }
.chart .area { background: var(--plot); outline: 1px solid var(--line); }
.chart .values { overflow: visible; }
.area > svg { width: 100%; height: 100%; overflow: visible; }
.names { width: 100%; height: 100%; overflow: visible; }
.chart .axis { grid-column: 2; }
.axis { width: 100%; height: 18px; overflow: visible; }
.axis.two { height: 32px; }
.strip { width: 100%; height: 9px; overflow: visible; }
.area.grid-cells { height: auto; }
.heat .values { height: 100%; }
.grid { stroke: var(--line); shape-rendering: crispEdges; }
.area path { fill: none; vector-effect: non-scaling-stroke; stroke-width: 1.75; stroke-linejoin: round; }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); } .s2 { stroke: var(--s2); } .s3 { stroke: var(--s3); }
.s4 { stroke: var(--s4); } .s5 { stroke: var(--s5); } .s6 { stroke: var(--s6); } .s7 { stroke: var(--s7); }
.dashed { stroke-dasharray: 5 3; }
.area path.nonfinite { stroke: var(--bad); stroke-width: 7; }
.mark { stroke: var(--tone); stroke-width: 1.5; stroke-dasharray: 3 3; opacity: .8; }
.band { fill: var(--tone); opacity: .16; }
.strip .band { opacity: .6; } .strip .mark { stroke-dasharray: none; stroke-width: 2; }
.cursor { stroke: var(--ink); stroke-width: 1; opacity: .6; pointer-events: none; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: .5rem 0; padding: 0; font-size: .8125rem; }
.legend li { display: flex; align-items: center; gap: .4rem; }
.legend button { border: 0; padding: 0; background: none; }
.legend [aria-pressed="false"] { opacity: .45; text-decoration: line-through; }
.key { width: 22px; height: 12px; flex: none; } .key path { fill: none; stroke-width: 2.5; }
.legend li .key:has(rect) { width: 12px; }
.colors { align-items: center; }
.ramp { width: 11rem; height: 10px; border: 1px solid var(--line); }
.line { display: grid; grid-template-columns: minmax(8rem, 21rem) minmax(0, 1fr); column-gap: .75rem; align-items: center; }
.named { margin: .25rem 0; }
.name { font-size: .8125rem; overflow-wrap: anywhere; }
.name button { border: 0; padding: 0; background: none; max-width: 100%; overflow-wrap: anywhere; text-align: left;
  display: block; }
.name button:hover { color: var(--accent); }
.bars { width: 100%; height: 26px; border-bottom: 1px solid var(--line); }
.line.large .bars { height: 150px; margin: .4rem 0; background: var(--plot); }
.line.large .cells { height: 44px; margin: .25rem 0; }
.beyond { grid-column: 2; font-size: .78125rem; color: var(--soft); }
.bars path { stroke: none; shape-rendering: crispEdges; }
.fits { fill: var(--fits); } .coarse { fill: var(--coarse); } .lost { fill: var(--lost); } .over { fill: var(--over); }
.bars path.limit { fill: none; stroke: var(--soft); vector-effect: non-scaling-stroke; stroke-width: 1; }
.heat .line { min-height: 16px; }
.heat .name { font-size: .75rem; line-height: 16px; }
.cells { width: 100%; height: 15px; background: var(--plot); }
.cells path, .grid-cells path, .ramp path { fill: none; stroke-width: 1; shape-rendering: crispEdges; vector-effect: none; }
line.casing { stroke: var(--casing); stroke-width: 4; opacity: .85; }
line.limit { stroke: var(--limit); stroke-width: 1.5; stroke-dasharray: 6 3; }
path.h0 { stroke: var(--h0); } path.h1 { stroke: var(--h1); } path.h2 { stroke: var(--h2); } path.h3 { stroke: var(--h3); }
path.h4 { stroke: var(--h4); } path.h5 { stroke: var(--h5); } path.h6 { stroke: var(--h6); } path.h7 { stroke: var(--h7); }
path.h8 { stroke: var(--h8); } path.h9 { stroke: var(--h9); } path.h10 { stroke: var(--h10); } path.h11 { stroke: var(--h11); }
path.h12 { stroke: var(--h12); } path.h13 { stroke: var(--h13); } path.h14 { stroke: var(--h14); } path.h15 { stroke: var(--h15); }
.more { margin: .25rem 0; }
.plot.graph .scroll { padding: .75rem; max-height: 76rem; margin-bottom: .5rem; }
.graph .node rect { fill: var(--card); stroke: var(--line); stroke-width: 1.25; }
.graph .node.marked rect { fill: var(--bad-soft); stroke: var(--bad); stroke-width: 1.75; }
.graph .node text { fill: var(--ink); font-size: 13px; font-weight: 550; }
.graph .node text.detail { fill: var(--soft); font-size: 11.5px; font-weight: 400; }
.link { fill: none; stroke: var(--soft); stroke-width: 1.25; opacity: .7; } .link.marked { stroke: var(--bad); stroke-width: 2.25; opacity: 1; }
.head { fill: var(--soft); } .head.marked { fill: var(--bad); }
.nodes .marked strong { color: var(--bad); }
.marks { margin-top: .5rem; } .marks ul { margin: .25rem 0; padding-left: 1.1rem; font-size: .8125rem; } .marks li::marker { color: var(--tone); }
.sources { list-style: none; padding: 0; margin: 0; font-size: .875rem; }
footer { max-width: 84rem; margin: 2rem auto 0; padding: 1rem 1.25rem 2rem; color: var(--soft); font-size: .8125rem; }
.js .tip.on { display: block; position: fixed; z-index: 9; pointer-events: none; max-width: 24rem; background: var(--ink);
  color: var(--card); font-size: .8125rem; line-height: 1.4; padding: .35rem .6rem; border-radius: 6px; white-space: pre-line; }
.hidden { display: none; }
@media (max-width: 46rem) {
  main { padding: .75rem .75rem 0; } .bar { padding: .45rem .75rem; gap: .5rem; } .bar nav { display: none; }
  .card { padding: .85rem; } .facts { grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); } .line { grid-template-columns: minmax(0, 1fr); } .line .name { margin-top: .3rem; }
  .line.head > span, .line.foot > span { display: none; } .beyond { grid-column: 1; }
  .chart { grid-template-columns: 3.25rem minmax(0, 1fr); } .chart.limited { grid-template-columns: 2.75rem minmax(0, 1fr) 6.5rem; }
  tbody th { position: static; } thead th:first-child { left: auto; z-index: 2; }
}
@media print {
  :root { --page: #ffffff; } body { font-size: 10pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .bar { position: static; } .bar nav, .needs-script, .js .needs-script, .tools, .tip { display: none; }
  main { max-width: none; padding: 0; } .scroll { max-height: none; overflow: visible; border: 0; }
  thead th, tbody th { position: static; } table { font-size: 7.5pt; } th, td { padding: .15rem .3rem; white-space: normal; }
  .card, .finding, .verdict { break-inside: avoid; } .card.table, .plot.histogram, .plot.heatmap { break-inside: auto; }
  .line, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } .pictures { display: block; } .plot { margin-bottom: 1rem; }
  tbody th { min-width: 0; } svg.graph { max-width: 100%; height: auto; } .sort::after { content: none; }
}
)";

}  // namespace

// Dark where the reader's system is, unless the reader chose.
std::string_view html_style() {
  static const std::string style =
      "\n" + std::string(kLight) + "@media (prefers-color-scheme: dark) { :root:not([data-theme=\"light\"]) {\n" +
      std::string(kDark) + "} }\n:root[data-theme=\"light\"] { color-scheme: light; }\n:root[data-theme=\"dark\"] {\n" +
      "  color-scheme: dark;\n" + std::string(kDark) + "}\n" + std::string(kRest);
  return style;
}

}  // namespace ulpscope
