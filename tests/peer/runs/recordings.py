"""Sound, video, point clouds and molecules: files as they are, and what is encoded here."""

import io
import wave
from pathlib import Path

import numpy as np
import wandb

with wave.open("beep.wav", "wb") as file:
    file.setparams((1, 2, 8000, 0, "NONE", ""))
    file.writeframes(bytes(1600))
for name in ("clip.mp4", "anim.gif", "model.obj", "cell.pdb"):
    Path(name).write_bytes(f"not decoded: {name}".encode())
points = np.arange(30, dtype=float).reshape(10, 3)
with wandb.init(project="peer", id="recordings") as run:
    run.log({"beep": wandb.Audio("beep.wav", caption="a beep"), "loss": 1})
    run.log({"tone": wandb.Audio(np.linspace(-0.5, 0.5, 800), sample_rate=8000)})
    run.log({"clip": wandb.Video("clip.mp4", caption="a clip"), "anim": wandb.Video("anim.gif", format="gif")})
    run.log({"mesh": wandb.Object3D("model.obj", caption="a mesh"), "cloud": wandb.Object3D(points)})
    run.log({"scene": wandb.Object3D({"type": "lidar/beta", "points": points})})
    run.log({"stream": wandb.Object3D(io.StringIO("v 0 0 0\n"), file_type="obj")})
    run.log({"sounds": [wandb.Audio("beep.wav", caption="1"), wandb.Audio("beep.wav", caption="2")]})
    run.log({"cell": wandb.Molecule("cell.pdb", caption="a cell")})
