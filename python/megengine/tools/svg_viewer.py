"""Serve a page to look at memory_flow.svg files of the profiler in: choose a file, zoom with the wheel, drag."""

from __future__ import annotations

import http.server
import sys
from collections.abc import Sequence

from ._command import Parser, UsageError, run

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>memory flow</title>
<meta name="color-scheme" content="light dark"><style>
body{margin:0;font:14px system-ui,sans-serif;height:100vh;display:flex;flex-direction:column}
header{padding:10px 16px;border-bottom:1px solid #8886;display:flex;gap:14px;align-items:center}
#stage{flex:1;overflow:hidden;cursor:grab;touch-action:none;background:#8881}
#stage>*{transform-origin:0 0;position:absolute;background:#fff;max-width:none}</style></head><body>
<header><b>memory_flow.svg</b><input id="file" type="file" accept=".svg,image/svg+xml">
<span>wheel: zoom, drag: move, double click: as it was</span></header><div id="stage"></div><script>
const stage=document.getElementById('stage');let k=1,x=0,y=0,down=null,image=null;
const place=()=>{if(image)image.style.transform=`translate(${x}px,${y}px) scale(${k})`};
document.getElementById('file').onchange=e=>{const f=e.target.files[0];if(!f)return;
 if(image){URL.revokeObjectURL(image.src);image.remove()}
 image=new Image();image.src=URL.createObjectURL(f);image.draggable=false;
 stage.append(image);k=1;x=y=0;place()};
stage.onwheel=e=>{e.preventDefault();const r=stage.getBoundingClientRect(),s=Math.exp(-e.deltaY*.0015),
 px=e.clientX-r.left,py=e.clientY-r.top;x=px-(px-x)*s;y=py-(py-y)*s;k*=s;place()};
stage.onpointerdown=e=>{down=[e.clientX-x,e.clientY-y];stage.setPointerCapture(e.pointerId)};
stage.onpointermove=e=>{if(down){x=e.clientX-down[0];y=e.clientY-down[1];place()}};
stage.onpointerup=()=>down=null;stage.ondblclick=()=>{k=1;x=y=0;place()};
</script></body></html>"""


class Handler(http.server.BaseHTTPRequestHandler):
    """The one page, whatever is asked for; files stay where they are, the browser reads what the user chooses."""

    def do_GET(self) -> None:
        """The page."""
        found = self.path.split("?")[0] in ("/", "/index.html", "/svg_viewer.html")
        body = PAGE.encode() if found else b"there is only /"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8" if found else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; serves until it is stopped."""
    parser = Parser("svg_viewer", __doc__)
    parser.add_argument("-p", "--port", type=int, default=8000, help="port; 0 takes a free one")
    parser.add_argument("-a", "--address", default="localhost", help="address to listen on")
    args = parser.parse_args(argv)
    if not 0 <= args.port < 65536:
        raise UsageError(f"--port: {args.port} is no port")
    with http.server.ThreadingHTTPServer((args.address, args.port), Handler) as server:
        print(f"http://{args.address}:{server.server_address[1]}/svg_viewer.html", flush=True)
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(run("svg_viewer", main))
