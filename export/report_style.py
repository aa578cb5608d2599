"""The look of the report's page."""

from __future__ import annotations

from .chart_style import CHART_CSS, COLOURS, DARK, LIGHT


def _swatches(colours: tuple[str, ...]) -> str:
    return "".join(f".swatch.c{number}{{--c:{colour}}}" for number, colour in enumerate(colours[:COLOURS]))


PAGE_CSS = (
    """
:root{color-scheme:light dark;--back:#f6f7f9;--card:#fff;--line:#dfe3e8;--text:#1c2430;--soft:#5b6472;--bad:#b42318;--warn:#8a5a00;
--good:#13703a;--accent:#1d4ed8}
@media screen and (prefers-color-scheme:dark){:root{--back:#0f1318;--card:#171c23;--line:#2a323d;--text:#e4e8ee;--soft:#9aa6b6;
--bad:#ff8a80;--warn:#f0c04a;--good:#5bd38a;--accent:#8ab4ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:14px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
main{max-width:1400px;margin:0 auto;padding:20px 24px 60px}
h1{font-size:22px;margin:0}
h2{font-size:16px;margin:32px 0 10px;border-bottom:1px solid var(--line);padding-bottom:4px}
h3{font-size:14px;margin:18px 0 8px}
a{color:var(--accent)}
.quiet,h2 .quiet{color:var(--soft);font-weight:400}
p.quiet{margin:6px 0}
.title{display:flex;gap:12px;align-items:center;flex-wrap:wrap}
.badge,.tag{border:1px solid var(--line);border-radius:99px;padding:1px 10px;font-size:12px;background:var(--card)}
.badge{font-weight:600}
.finished{color:var(--good)}.failed,.crashed{color:var(--bad)}.running{color:var(--accent)}
.facts{display:flex;flex-wrap:wrap;gap:4px 24px;margin:10px 0 0;padding:0;list-style:none}
.facts b{font-weight:500;color:var(--soft);margin-right:6px}
nav{margin:14px 0 0;display:flex;gap:4px 16px;flex-wrap:wrap}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px}
.box{padding:10px 14px;margin:10px 0 0;white-space:pre-wrap}
.box.damage{border-left:4px solid var(--bad);white-space:normal}
.box.alert{border-left:4px solid var(--warn)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,360px),1fr));gap:14px}
figure{margin:0;padding:10px 12px 8px;break-inside:avoid}
figcaption{display:flex;justify-content:space-between;gap:12px}
figcaption b{font-weight:600}
figcaption span{color:var(--soft);white-space:nowrap;font-variant-numeric:tabular-nums}
figure svg{display:block;width:100%;height:auto}
figure p{margin:4px 0 0;font-size:12px;color:var(--soft)}
figure ul{margin:4px 0 0;padding:0;list-style:none;display:flex;flex-wrap:wrap;gap:0 14px;font-size:12px;color:var(--soft)}
.swatch{display:inline-block;width:16px;border-top:3px solid var(--c);vertical-align:middle;margin-right:5px}
.swatch.d1{border-top-style:dashed}.swatch.d2{border-top-style:dotted}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:0 20px}
.scroll{overflow:auto;max-height:480px;border:1px solid var(--line);border-radius:8px;background:var(--card)}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:4px 12px;border-top:1px solid var(--line);vertical-align:top;font-variant-numeric:tabular-nums}
tbody th{font-weight:400;color:var(--soft);width:40%}
thead th{border-top:0;color:var(--soft);font-weight:500;font-size:12px}
code,.console{font:12px/1.45 ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}
.console{margin:0;padding:10px 14px;white-space:pre-wrap}
.console i{color:var(--bad);font-style:normal}
.console time{color:var(--soft);user-select:none}
details{margin:8px 0}
summary{cursor:pointer;padding:2px 0}
.pictures{display:flex;flex-wrap:wrap;gap:14px}
.pictures img{display:block;max-width:256px;min-width:96px;image-rendering:pixelated}
footer{margin-top:40px;color:var(--soft);font-size:12px}
:focus-visible{outline:2px solid var(--accent);outline-offset:1px}
@media (max-width:500px){main{padding:14px 12px 40px}}
@media print{h2,h3{break-after:avoid}main{max-width:none;padding:0}.scroll{max-height:none;overflow:visible}nav{display:none}
.charts{grid-template-columns:1fr 1fr}body{background:#fff;font-size:11px}}
""".replace("\n", "")
    + CHART_CSS
    + _swatches(LIGHT)
    + f"@media screen and (prefers-color-scheme:dark){{{_swatches(DARK)}}}"
)
