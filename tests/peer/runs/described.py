"""A config that is a dataclass, with defaults and a dataclass inside; parts of a config chosen by name."""

from dataclasses import asdict, dataclass, field

import wandb


@dataclass
class Model:
    width: int = 64
    act: str = "relu"


@dataclass
class Config:
    lr: float = 0.1
    layers: list = field(default_factory=lambda: [1, 2])
    model: Model = field(default_factory=Model)


with wandb.init(project="peer", id="described", config=asdict(Config()), config_exclude_keys=["layers"]) as run:
    run.config.update({"given": asdict(Model(width=8))})
    run.log({"loss": 1})
with wandb.init(project="peer", id="chosen", config={"a": 1, "b": 2, "c": 3}, config_include_keys=["a", "b"]) as run:
    run.log({"loss": 1})
with wandb.init(project="peer", id="object", config=Config(lr=0.5)) as run:
    run.log({"lr": run.config.lr, "width": run.config["model"]["width"]})
