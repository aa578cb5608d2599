"""HTML: text, files, with and without the peer's head; alone, nested, in a list and in the summary."""

import io
from pathlib import Path

import wandb

Path("page.html").write_text("<html><head><title>t</title></head><body>file</body></html>")
with wandb.init(project="peer", id="pages") as run:
    run.log({"plain": wandb.Html("<b>bold</b>", inject=False), "loss": 1})
    run.log({"injected": wandb.Html("<html><head></head><body>x</body></html>")})
    run.log({"file": wandb.Html("page.html"), "stream": wandb.Html(io.StringIO("<i>stream</i>"), inject=False)})
    run.log({"nested": {"page": wandb.Html("<p>\u00fc</p>", inject=False)}, "a/b": wandb.Html("<u>u</u>")})
    run.log({"same": wandb.Html("<b>bold</b>", inject=False)})
    run.log({"pages": [wandb.Html("<p>1</p>", inject=False), wandb.Html("<p>2</p>", inject=False)]})
    run.summary["shown"] = wandb.Html("<b>end</b>", inject=False)
