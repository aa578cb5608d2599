"""A Lightning `Trainer` with a module of one layer: `WandbLogger` for the peer, a logger of ours for us."""

import lightning
import torch
import wandb
from torch import nn

torch.set_num_threads(1)
lightning.seed_everything(3, verbose=False)
if wandb.__name__ == "runferry":
    from runferry.writer.integrations.lightning import RunferryLogger as Logger
else:
    from lightning.pytorch.loggers import WandbLogger as Logger


class Line(lightning.LightningModule):
    def __init__(self, width=4, lr=0.05, activation=torch.tanh, tags=("a", "b")):
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(width, 1)

    def loss(self, batch):
        return (self.hparams.activation(self.layer(batch[0])) - batch[1]).square().mean()

    def training_step(self, batch, _):
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.log_dict({"lr": self.hparams.lr, "twice": 2 * loss})
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(batch))

    def test_step(self, batch, number):
        self.log("test_loss", self.loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


def loader(count):
    inputs = torch.randn(count, 4)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())
    return torch.utils.data.DataLoader(data, batch_size=8)


logger = Logger(project="lines", name="line", version="pl", save_dir=".", prefix="m")
trainer = lightning.Trainer(
    max_epochs=3,
    logger=logger,
    log_every_n_steps=2,
    accelerator="cpu",
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Line()
trainer.fit(model, loader(48), loader(16))
trainer.test(model, loader(16), verbose=False)
logger.experiment.summary["done"] = True
assert (logger.name, logger.version, logger.save_dir) == ("lines", "pl", ".")
wandb.finish()
