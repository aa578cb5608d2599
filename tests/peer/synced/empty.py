"""A run that logs nothing."""

import wandb

wandb.init(project="peer", id="empty").finish()
