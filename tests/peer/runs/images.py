"""Images: from arrays, files and Pillow, with captions, masks and boxes, alone, in lists and in the summary."""

from pathlib import Path

import numpy as np
import wandb
from PIL import Image

pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
Image.fromarray(pixels).save("own.png")
Path("own.jpg").write_bytes(b"\xff\xd8\xff\xe0 not decoded")
mask = {"mask_data": np.eye(4, 6, dtype=np.uint8), "class_labels": {0: "none", 1: "some"}}
box = {"position": {"minX": 0.1, "maxX": 0.2, "minY": 0.3, "maxY": 0.4}, "class_id": 1, "scores": {"p": 0.5}}
with wandb.init(project="peer", id="images") as run:
    run.log({"rgb": wandb.Image(pixels), "loss": 1})
    run.log(
        {
            "gray": wandb.Image(pixels[:, :, 0], caption="one channel"),
            "alpha": wandb.Image(np.dstack([pixels, pixels[:, :, 0]])),
        }
    )
    run.log({"floats": wandb.Image(np.linspace(0, 1, 24).reshape(4, 6)), "mode": wandb.Image(pixels, mode="L")})
    run.log(
        {
            "pillow": wandb.Image(Image.new("RGB", (5, 3), "red")),
            "file": wandb.Image("own.png"),
            "jpg": wandb.Image(pixels, file_type="jpg"),
        }
    )
    run.log({"nested": {"deep": wandb.Image(pixels)}, "sl/ash": wandb.Image(pixels)})
    run.log({"list": [wandb.Image(pixels, caption="a"), wandb.Image(pixels.T.reshape(4, 6, 3), caption="b")]})
    run.log(
        {
            "masked": wandb.Image(
                pixels, masks={"truth": mask}, boxes={"found": {"box_data": [box], "class_labels": {1: "cat"}}}
            )
        }
    )
    run.log({"later": wandb.Image(pixels)}, step=20)
    run.summary["shown"] = wandb.Image(pixels)
