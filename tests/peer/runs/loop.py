"""What a first training script does."""

import math

import wandb

wandb.init(project="peer", id="loop", config={"learning_rate": 0.01, "epochs": 5}, tags=["baseline"], job_type="train")
config = wandb.config
wandb.define_metric("epoch")
wandb.define_metric("val/*", step_metric="epoch")
step = 0
for epoch in range(config.epochs):
    for batch in range(10):
        loss = math.exp(-config["learning_rate"] * step) + batch / 100
        wandb.log({"train/loss": loss, "train/lr": config.learning_rate * 0.9**epoch}, step=step)
        step += 1
    wandb.log({"val/loss": loss * 1.1, "val/acc": 1 - loss / 2, "epoch": epoch}, step=step)
    if epoch == 3:
        wandb.alert(title="Low loss", text=f"loss is {loss:.3f}")
wandb.run.summary["final_loss"] = loss
wandb.finish()
